"""What README.md of every export must tell, and what programs it holds."""

import re


def indented(text):
    """Return the lines of code in a Markdown text."""
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def check_readme(folder, manifest):
    """Compare README.md with the manifest of its export; return its text."""
    text = (folder / "README.md").read_text()
    assert "README.md" in manifest.files
    assert not re.search(r"\$\w|todo", text.replace("$readmemh", ""))
    window, stride = manifest.window, manifest.stride
    for fact in (
        f"{manifest.rows} of {window}×{window} pixels, every {stride}",
        f"{manifest.nonzeros:,}",
        manifest.phi,
        f"{manifest.pixel_bits} bits, 0 to {2**manifest.pixel_bits - 1}",
        f"{manifest.accumulator_bits} bits, two's complement",
    ):
        assert fact in text
    for name in manifest.files:
        if "/frame-" not in name and name != "README.md":
            assert f"`{name.rsplit('/')[-1]}`" in text
    return text


def run_the_program_of_the_readme(folder, text):
    """Run the Python program of an ONNX export on a small image."""
    code = "\n".join(line for line in indented(text) if not line.startswith("tersense"))
    code = code.replace("(1, 480, 640)", "(1, 13, 22)")
    names = {}
    exec(code.replace('InferenceSession("', f'InferenceSession("{folder}/'), names)
    assert names["pixels"].shape == (1, 13, 22)
