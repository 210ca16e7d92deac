"""Entry of the demonstration."""

from perdure.lab.demo.show import main

if __name__ == "__main__":
    main()
