# Part "figures": matplotlib without a display. Figures are pictures, at plt.show() or at the end of the cell.

# Most figures of one cell.
FIGURE_LIMIT = 50


def figure_png(figure):
    from io import BytesIO

    file = BytesIO()
    try:
        figure.savefig(file, format="png", bbox_inches="tight")
        return file.getvalue()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        warn("A figure could not be drawn: %s." % plain_error(error))
        return None


def show_figure(figure):
    part("show")
    png = figure_png(figure)
    if png is not None:
        data = encoded({"image/png": png, "text/plain": text_of(figure)})
        record("display", {"data": "{%s}" % ",".join("%s:%s" % (quote(mime), form) for mime, form in data.items())})


def show_figures():
    """Shows every open figure once and closes it."""
    managers = getattr(modules.get("matplotlib._pylab_helpers"), "Gcf", None)
    if managers is None:
        return
    open_now = sorted(managers.get_all_fig_managers(), key=lambda manager: manager.num)
    for n, manager in enumerate(open_now):
        figure = manager.canvas.figure
        if n == FIGURE_LIMIT:
            warn("%d figures were open; only the first %d are shown." % (len(open_now), FIGURE_LIMIT))
        if n < FIGURE_LIMIT and id(figure) not in shown:
            show_figure(figure)
        managers.destroy(manager.num)


def show_pyplot(*args, **options):
    """plt.show()"""
    if is_driver():
        show_figures()


def show_one(figure, *args, **options):
    """figure.show(): at once, and not again at the end."""
    if is_driver() and id(figure) not in shown:
        show_figure(figure)
        shown.add(id(figure))
