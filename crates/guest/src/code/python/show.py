# Part "show": values in all the forms that they have.

# Largest single form, and all forms of one record together, in characters as sent.
FORM_LIMIT = 8 << 20
FORMS_LIMIT = 12 << 20
# Most rows of a data frame.
ROW_LIMIT = 60
METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
)


def show(kind, value, raw=False):
    if not is_driver():
        # A process that the code forked has no channel; it shows text.
        print(text_of(value))
        return
    forms = dict(value) if raw and isinstance(value, dict) else forms_of(value)
    data = encoded(forms)
    if data:
        record(kind, {"data": "{%s}" % ",".join("%s:%s" % (quote(mime), form) for mime, form in data.items())})


def forms_of(value):
    kind = type(value)
    special = special_forms(value, kind)
    if special is not None:
        return special
    forms = own_bundle(value, kind)
    for method, mime in METHODS:
        if mime in forms or (mime == "image/jpeg" and "image/png" in forms):
            continue
        form = ask(value, kind, method)
        if form is not None:
            # Some return the form together with its metadata.
            forms[mime] = form[0] if isinstance(form, tuple) and len(form) == 2 else form
    forms.setdefault("text/plain", None)
    if not isinstance(forms["text/plain"], str):
        forms["text/plain"] = text_of(value)
    return forms


def own_bundle(value, kind):
    bundle = ask(value, kind, "_repr_mimebundle_", include=None, exclude=None)
    if isinstance(bundle, tuple) and bundle:
        bundle = bundle[0]
    return dict(bundle) if isinstance(bundle, dict) else {}


def ask(value, kind, method, **options):
    """Calls a method that the class has; an object that answers to every name does not count."""
    if issubclass(kind, type):
        return None
    call = getattr(kind, method, None)
    if not callable(call):
        return None
    try:
        return call(value, **options)
    except (KeyboardInterrupt, SystemExit):
        raise
    except NotImplementedError:
        return None
    except BaseException as error:
        warn("%s of %s raised %s." % (method, kind.__name__, plain_error(error)))
        return None


def loaded_class(module, name):
    """A class of a module that the code has imported; we import no such module."""
    found = getattr(modules.get(module), name, None)
    return found if isinstance(found, type) else ()


def special_forms(value, kind):
    if isinstance(value, loaded_class("matplotlib.figure", "Figure")):
        part("figures")
        png = figure_png(value)
        shown.add(id(value))
        if png is not None:
            return {"image/png": png, "text/plain": text_of(value)}
    if isinstance(value, loaded_class("pandas", "DataFrame")) or isinstance(value, loaded_class("pandas", "Series")):
        return frame_forms(value, kind)
    if isinstance(value, loaded_class("PIL.Image", "Image")):
        return image_forms(value)
    return None


def frame_forms(value, kind):
    """pandas keeps its own limits unless the code has lifted them."""
    try:
        rows = modules["pandas"].get_option("display.max_rows")
        limits = () if rows and rows <= ROW_LIMIT else ("display.max_rows", ROW_LIMIT)
        if not limits:
            return table_forms(value, kind)
        with modules["pandas"].option_context(*limits):
            return table_forms(value, kind)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return {"text/plain": text_of(value)}


def table_forms(value, kind):
    forms = {"text/plain": text_of(value)}
    html = ask(value, kind, "_repr_html_")
    if html is not None:
        forms["text/html"] = html
    return forms


def image_forms(value):
    from io import BytesIO

    forms = {"text/plain": text_of(value)}
    for mode in (None, "RGBA", "RGB"):
        try:
            file = BytesIO()
            (value.convert(mode) if mode else value).save(file, "PNG")
            forms["image/png"] = file.getvalue()
            break
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            last = error
    else:
        warn("The image could not be made a PNG: %s." % plain_error(last))
    return forms


def encoded(forms):
    """The forms as JSON; forms that are too large or not values are left out and reported."""
    data, total = {}, 0
    for mime, form in forms.items():
        if form is None:
            continue
        try:
            json = encoded_form(str(mime), form)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            warn("%s was left out: %s." % (mime, plain_error(error)))
            continue
        if len(json) > FORM_LIMIT or total + len(json) > FORMS_LIMIT:
            limit = min(FORM_LIMIT, FORMS_LIMIT - total)
            warn("%s was left out: %d characters are more than %d. Write it to a file." % (mime, len(json), limit))
            continue
        total += len(json)
        data[mime] = json
    return data


def encoded_form(mime, form):
    if mime == "application/json" or mime.endswith("+json"):
        return encoded_json(form)
    if isinstance(form, (bytes, bytearray, memoryview)):
        if mime.startswith("text/") or mime == "image/svg+xml":
            return quote(bytes(form).decode("utf-8", "replace"))
        from binascii import b2a_base64

        return '"%s"' % b2a_base64(form, newline=False).decode()
    text = form if isinstance(form, str) else str(form)
    if mime == "text/plain":
        text = shorten(text)
    elif not (mime.startswith("text/") or mime == "image/svg+xml"):
        text = "".join(text.split())
    return quote(text)


def encoded_json(form):
    from json import dumps, loads

    text = dumps(form, allow_nan=False, default=str)
    if "\\ud" in text:
        # Half of a surrogate pair is not text in JSON.
        clean = dumps(form, allow_nan=False, default=str, ensure_ascii=False).encode("utf-8", "replace")
        text = dumps(loads(clean.decode()))
    return text


def text_of_many(value):
    """The first items of a long container."""
    from itertools import islice

    kind = type(value)
    head = list(islice(value.items() if kind is dict else value, ITEM_LIMIT))
    text = repr(dict(head) if kind is dict else kind(head))
    closing = 2 if kind is frozenset else 1
    return "%s, … %d more items%s" % (text[:-closing], len(value) - ITEM_LIMIT, text[-closing:])
