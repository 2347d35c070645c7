"""``python -m archwright`` is the command ``archwright``."""

from archwright.cli.main import main

if __name__ == "__main__":
    main()
