"""Entry of the demonstration."""

from holdfast.demo.show import main

if __name__ == "__main__":
    main()
