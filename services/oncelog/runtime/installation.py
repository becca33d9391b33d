"""How to install what is missing. Oncelog is on no package index: `make dist` in its source builds the wheels."""

from importlib.metadata import version


def install_command(*extras: str, lab: bool = False) -> str:
    """The command that installs the wheel of Oncelog with these extras; lab: that of the lab, too. Without extras and
    with lab: only that of the lab."""
    number = version("oncelog")
    wheels = [f"dist/oncelog_lab-{number}-py3-none-any.whl"] if lab else []
    if extras or not lab:
        names = f"[{','.join(extras)}]" if extras else ""
        wheels.append(f"'dist/oncelog-{number}-py3-none-any.whl{names}'")
    return f"pip install {' '.join(wheels)} (`make dist` in the source builds these files)"
