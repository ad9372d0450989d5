"""Six figures that routers do not publish: `python -m bench --figures`.

Each module measures one or two and reduces them to a `Figure`; `run.py` has the table of all of them.
"""
