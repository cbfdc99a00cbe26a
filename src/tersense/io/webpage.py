"""What the two web pages say and look like: the one with a server behind it, and the one without.

`tersense app` computes on a machine of yours, `tersense export web` in the browser of whoever opens
the page. Words and colors are the same.
"""

from tersense.io.figures import FULL_SCALE
from tersense.io.images import PHOTOGRAPH

INTRODUCTION = """
<header>
<h1>tersense</h1>
<p>A camera that never records the image. It records a few sums of pixels, each weighted by
<b class="minus">−1</b>, 0 or <b class="plus">+1</b>, and a network turns the sums back into the
image.</p>
</header>
"""
NOTHING = "No result. Pick or upload an image."

# Captions, and what is said beside them.
PICK = "Pick an image", ""
UPLOAD = "or upload one", "gray or color, up to {} MB"
SLIDER = "Move the slider", "left of it is the original"
ERROR = "Error", f"in gray levels, {FULL_SCALE} or more in the lightest color"
COUNTS = "Counts", "measurements per window: blue fewer, orange more than uniform"
PATTERNS = "The patterns", "+1 orange, −1 blue, 0 gray"
MEASUREMENTS = "The measurements", "a small image for each pattern, middle gray is 0"
RATE_LABEL = "Rate: measurements per pixel"
BITS_LABEL = "Bits of a measurement"
NOISE_LABEL = "Noise of the sensor, in gray levels"
DOWNLOAD_TSM, DOWNLOAD_PNG = "↓ Measurements (.tsm)", "↓ Image (.png)"

BITS = {"exact": 0, "10": 10, "8": 8, "6": 6, "4": 4}  # of a measurement, as the pages name them
NOISES = {"none": 0.0, "10": 10.0, "30": 30.0, "100": 100.0}  # deviation, in pixel values
SAMPLES = [PHOTOGRAPH, *map(PHOTOGRAPH.with_name, ("coffee.jpg", "camera.png"))]
STYLE = PHOTOGRAPH.with_name("page.css")  # that both pages share


def caption(words: tuple[str, str]) -> str:
    """Return a caption as HTML."""
    return f"<h2>{words[0]} <small>{words[1]}</small></h2>"
