//! Values in all their forms: pictures, HTML, data frames, JSON.

use guest_protocol::MimeBundle;

use crate::{
    python_notebook::{Notebook, text},
    support::exited,
};

/// How the base64 of every PNG begins.
const PNG: &str = "iVBORw0KGgo";

fn form<'a>(data: &'a MimeBundle, mime: &str) -> &'a str {
    data.get(mime).and_then(serde_json::Value::as_str).unwrap_or_else(|| panic!("no {mime} in {data:?}"))
}

#[test]
fn an_object_is_shown_in_the_forms_that_it_has() {
    let python = Notebook::new();
    let code = "
class Rich:
    def _repr_html_(self): return '<b>ü</b>'
    def _repr_markdown_(self): return '**ü**'
    def _repr_latex_(self): return '$x$'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'\\x89PNG'
    def _repr_jpeg_(self): raise AssertionError('one picture is enough')
    def _repr_json_(self): return {'ü': [1, None]}
    def __repr__(self): return 'Rich!'
Rich()";
    let ran = python.run(code);
    let expected = serde_json::json!({
        "text/plain": "Rich!", "text/html": "<b>ü</b>", "text/markdown": "**ü**", "text/latex": "$x$",
        "image/svg+xml": "<svg/>", "image/png": "iVBORw==", "application/json": {"ü": [1, null]},
    });
    assert_eq!(serde_json::to_value(ran.result().unwrap()).unwrap(), expected);
    let code = "
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/plain': 'mine', 'application/vnd.x+json': {'a': 1}}, {'meta': 1}
    def _repr_html_(self): return 'too'
display(Bundle(), 5)";
    let ran = python.run(code);
    let shown: Vec<_> = ran.displays().into_iter().map(|data| serde_json::to_value(data).unwrap()).collect();
    let bundle =
        serde_json::json!({"text/plain": "mine", "application/vnd.x+json": {"a": 1}, "text/html": "too"});
    assert_eq!(shown, [bundle, serde_json::json!({"text/plain": "5"})]);
    // Classes and objects that answer to every name are shown as text only.
    let ran = python.run("Rich\n");
    assert_eq!(ran.result().unwrap().len(), 1);
    let ran = python.run("from unittest.mock import Mock\nMock()");
    assert_eq!(ran.result().unwrap().len(), 1, "{ran:?}");
}

#[test]
fn what_cannot_be_shown_or_is_too_large_is_told() {
    let python = Notebook::new();
    let code = "
class Broken:
    def _repr_html_(self): raise ValueError('no html')
    def _repr_json_(self): return float('nan')
    def _repr_png_(self): return bytes(9 << 20)
Broken()";
    let ran = python.run(code);
    assert_eq!((ran.report.clone(), ran.result().unwrap().len()), (exited(0), 1));
    let warnings = ran.warnings().join("\n");
    for part in [
        "_repr_html_ of Broken raised ValueError: no html",
        "application/json was left out",
        "image/png was left out: 12582914",
    ] {
        assert!(warnings.contains(part), "{warnings}");
    }
    let shown = python.value("'x' * 1_000_000");
    assert!(shown.ends_with("… 900000 more characters") && shown.len() < 101_000);
    let shown = python.value("list(range(100_000))");
    assert!(shown.ends_with("998, 999, … 99000 more items]"), "{}", &shown[shown.len() - 50..]);
    assert!(python.value("{i: i for i in range(5000)}").ends_with("999: 999, … 4000 more items}"));
    let ran = python.run("for i in range(5000): display(i)");
    assert_eq!(ran.displays().len(), 1000);
    assert!(ran.warnings()[0].contains("more than 1000 things"), "{:?}", ran.warnings());
}

#[test]
fn every_open_figure_is_returned_as_a_picture() {
    let python = Notebook::with_env(&[("HOME", "/nonexistent")]);
    let ran = python.run("import matplotlib.pyplot as plt\nline = plt.plot([1, 2, 3])");
    assert_eq!((ran.report.clone(), ran.displays().len()), (exited(0), 1), "{ran:?}");
    assert!(form(ran.displays()[0], "image/png").starts_with(PNG));
    assert_eq!(text(ran.displays()[0]), "<Figure size 640x480 with 1 Axes>");
    // Each is shown once, in order, at show() or at the end, and then closed.
    let code = "
for n in (1, 2):
    plt.figure(figsize=(n, 1)); plt.plot([n])
plt.show()
plt.figure(figsize=(3, 1)); plt.plot([3])
print('last', end='')";
    let ran = python.run(code);
    let shown: Vec<&str> = ran.displays().into_iter().map(text).collect();
    let expected = [1, 2, 3].map(|n| format!("<Figure size {n}00x100 with 1 Axes>"));
    assert_eq!((shown, ran.stderr.as_str()), (expected.iter().map(String::as_str).collect(), ""));
    assert_eq!(python.value("plt.get_fignums()"), "[]");
    // A figure that is also the value, or was displayed, is not shown twice.
    let ran = python.run("figure, axes = plt.subplots()\nfigure");
    assert!(form(ran.result().unwrap(), "image/png").starts_with(PNG));
    assert!(ran.displays().is_empty());
    assert_eq!(
        python.run("figure, axes = plt.subplots()\ndisplay(figure)\nfigure.show()").displays().len(),
        1
    );
    // They are shown despite an error.
    let ran = python.run("plt.plot([1])\n1 / 0");
    assert_eq!((ran.displays().len(), ran.error().unwrap().0.as_str()), (1, "ZeroDivisionError"));
    let ran = python.run("plt.figure(figsize=(10_000, 10_000))\n5");
    assert!(ran.report == exited(0) && ran.warnings()[0].contains("could not be drawn"), "{ran:?}");
    // Children need no display either.
    let code = "import subprocess, sys\nsubprocess.check_output([sys.executable, '-c', 'import matplotlib; print(matplotlib.get_backend())'], text=True).strip().lower()";
    assert_eq!(python.value(code), "'agg'");
}

#[test]
fn data_frames_are_text_and_html_with_few_rows() {
    let python = Notebook::new();
    for prepare in ["", "pandas.set_option('display.max_rows', None)"] {
        let ran = python.run(&format!("import pandas\n{prepare}\npandas.DataFrame({{'a': range(5000)}})"));
        let data = ran.result().unwrap_or_else(|| panic!("{ran:?}"));
        assert!(text(data).contains("[5000 rows x 1 columns]") && text(data).lines().count() < 70);
        let html = form(data, "text/html");
        assert!(html.contains("<table") && html.matches("<tr").count() < 70);
    }
    assert!(python.value("pandas.Series(range(5000))").contains("Length: 5000"));
}

#[test]
fn images_of_any_mode_are_pngs() {
    let python = Notebook::new();
    for mode in ["RGB", "L", "1", "P", "F", "CMYK", "RGBA"] {
        let ran = python.run(&format!("from PIL import Image\nImage.new('{mode}', (2, 2))"));
        let data = ran.result().unwrap_or_else(|| panic!("{mode}: {ran:?}"));
        assert!(form(data, "image/png").starts_with(PNG), "{mode}");
    }
}

#[test]
fn display_of_other_libraries_is_ours() {
    let python = Notebook::new();
    // Laid out like IPython and plotly.
    let code = "
import os, sys, tempfile
root = tempfile.mkdtemp()
for path, source in {
    'IPython/__init__.py': '',
    'IPython/display.py': 'class HTML:\\n    def _repr_html_(self): return \"<i>\"\\ndef display(*a): raise AssertionError\\n',
    'plotly/__init__.py': '',
    'plotly/io.py': 'def show(figure): raise AssertionError\\n',
}.items():
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), 'w') as file: file.write(source)
sys.path.insert(0, root)
from IPython.display import display as show, HTML
import plotly.io
show(HTML())
plotly.io.show(HTML())";
    let ran = python.run(code);
    let shown: Vec<&str> = ran.displays().into_iter().map(|data| form(data, "text/html")).collect();
    assert_eq!((ran.report.clone(), shown), (exited(0), vec!["<i>", "<i>"]), "{ran:?}");
}
