"""The program `oncelog`, also `python -m oncelog.cli`."""

from oncelog.cli.app import app
from oncelog.runtime.descriptors import program


@program
def main() -> None:
    app(prog_name="oncelog")


if __name__ == "__main__":
    main()
