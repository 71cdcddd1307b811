# Part "watch": patches for modules that expect a terminal, a screen or files.


def watched_spec(name, path, target):
    for finder in sys.meta_path:
        if finder is Watch or not hasattr(finder, "find_spec"):
            continue
        spec = finder.find_spec(name, path, target)
        if spec is not None:
            change_when_run(spec.loader, changes[name])
            return spec
    return None


def change_when_run(loader, change):
    run_module = getattr(loader, "exec_module", None)
    if run_module is None or isinstance(loader, type):
        return

    def run_and_change(module):
        del loader.exec_module
        run_module(module)
        try:
            change(module)
        except Exception as error:
            warn("%s could not be set up for use without a terminal: %s." % (module.__name__, plain_error(error)))

    loader.exec_module = run_and_change


def change_linecache(linecache):
    for name, code in sources.items():
        linecache.cache[name] = cache_entry(name, code)


def change_getpass(getpass):
    def no_getpass(prompt="Password: ", stream=None):
        raise EOFError("getpass() has nobody to answer it: put the value into the code (asked was %r)" % (prompt,))

    getpass.getpass = no_getpass


def change_pyplot(pyplot):
    part("figures")
    pyplot.show = show_pyplot
    pyplot.Figure.show = show_one


def change_plotly(plotly):
    plotly.show = lambda figure, *args, **options: display(figure)


def change_ipython(module):
    module.display = display


def change_warnings(warnings):
    """Warnings about the driver's own work for a cell, such as drawing its figures, are reported at the cell's last
    line."""
    plainly = warnings._formatwarnmsg_impl

    def as_of_the_cell(message):
        if str(message.filename).startswith("<driver ") and sources:
            message.filename, code = next(reversed(sources.items()))
            message.lineno = code.rstrip().count("\n") + 1
        return plainly(message)

    warnings._formatwarnmsg_impl = as_of_the_cell


changes = {
    "warnings": change_warnings,
    "linecache": change_linecache,
    "getpass": change_getpass,
    "matplotlib.pyplot": change_pyplot,
    "plotly.io": change_plotly,
    "IPython.display": change_ipython,
    "IPython.core.display_functions": change_ipython,
}
