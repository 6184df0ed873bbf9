"""Where Triton keeps functions of targets: its libdevice is `math` here."""
