"""Share a camera: a folder, on disk or on a model hub, with the model and its card."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from tersense import __version__
from tersense.errors import TersenseError, install_hint, one_line
from tersense.evaluation.metrics import psnr, ssim
from tersense.io.files import make_folder, written_whole
from tersense.io.images import PHOTOGRAPH, read_image
from tersense.io.schema import toml_table
from tersense.models.files import write_model
from tersense.models.imager import Imager
from tersense.models.info import describe
from tersense.models.measured import measured_figures
from tersense.models.zoo import load, names

MODEL, CARD = "model.safetensors", "README.md"
_PRIVATE = {"out", "start", "train", "validation", "cache", "device"}  # where it was made
_ANY_RATE = "fewer = imager.at_rate(0.1).sense(image)  # any rate up to its own\n"
_MISSING = f"sharing models needs huggingface_hub: {install_hint('hub')}"


def save_pretrained(
    imager: Imager,
    folder: str | Path,
    figures: Iterable[dict[str, Any]] = (),
    license: str = "",
    repo_id: str = "",
) -> Path:
    """Write a camera and its card into a folder.

    Args:
        imager: The camera.
        folder: Where to; it is made if need be.
        figures: Results of `evaluate_folder` or of `tersense evaluate --json` to show in the card.
        license: Of the model, by the hub's short name, as in `mit`.
        repo_id: Where the folder will be on the hub, for the commands in the card.
    """
    card = model_card(imager, figures, license, repo_id)
    folder = make_folder(folder)
    write_model(folder / MODEL, imager)
    with written_whole(folder / CARD) as partial:
        partial.write_text(card, encoding="utf-8")
    return folder


def push_to_hub(
    imager: Imager,
    repo_id: str,
    figures: Iterable[dict[str, Any]] = (),
    license: str = "",
    private: bool = False,
    token: str | None = None,
) -> str:
    """Upload a camera and its card to the model hub; return the address.

    Args:
        imager: The camera.
        repo_id: `USER/NAME`; it is made if need be.
        figures: As in `save_pretrained`.
        license: As in `save_pretrained`.
        private: Whether a new repository is for its owner alone.
        token: Of the account; the one that `hf auth login` stored where not given.
    """
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ImportError as error:
        raise TersenseError(_MISSING) from error
    api = HfApi(token=token, library_name="tersense", library_version=__version__)
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(imager, folder, figures, license, repo_id)
        try:
            address = api.create_repo(repo_id=repo_id, private=private, exist_ok=True)
            api.upload_folder(
                repo_id=repo_id,
                folder_path=folder,
                commit_message=f"Upload {imager.name} with tersense {__version__}",
            )
        except (HfHubHTTPError, HFValidationError, OSError) as error:
            raise TersenseError(f"cannot upload to {repo_id}: {one_line(error)}") from error
    return str(address)


def from_pretrained(
    source: str | Path,
    revision: str | None = None,
    device: str | torch.device = "cpu",
    precision: str = "float32",
    token: str | None = None,
) -> Imager:
    """Load a camera from a folder, or from the model hub.

    Args:
        source: A folder that `save_pretrained` wrote, anything else that `load` takes, or
            `USER/NAME` on the hub. What is on disk comes first.
        revision: Branch, tag or commit on the hub.
        device: As in `load`.
        precision: As in `load`.
        token: For private repositories, as in `push_to_hub`.
    """
    name = os.fspath(source)
    on_disk = name in names() or Path(name).exists()
    if on_disk or name.count("/") != 1 or name.startswith(("/", ".", "~")):
        return load(name, device, precision)
    imager = load(_download(name, revision, token), device, precision)
    imager.name = name
    return imager


def _download(repo_id: str, revision: str | None, token: str | None) -> str:
    """Return the path of a model file of the hub, fetched unless it was before."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ImportError as error:
        raise TersenseError(f"{repo_id} is no folder here, and {_MISSING}") from error
    try:
        return str(hf_hub_download(repo_id, MODEL, revision=revision, token=token))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise TersenseError(
            f"{repo_id} is no folder here, and cannot be fetched from the hub: {one_line(error)}"
        ) from error


def model_card(
    imager: Imager,
    figures: Iterable[dict[str, Any]] = (),
    license: str = "",
    repo_id: str = "",
) -> str:
    """Return the card: what the camera is, how good it is, how to use it; see `save_pretrained`."""
    facts = "\n".join(f"| {name} | {value} |" for name, value in describe(imager).items())
    source = repo_id or "FOLDER"
    named = f"license: {license}\n" if license else ""
    return f"""---
library_name: tersense
pipeline_tag: image-to-image
{named}tags:
- compressed-sensing
- computational-imaging
- ternary
---

# {imager.name}

A camera that measures sums of pixels with weights −1, 0 and +1, and the reconstruction that gives
the image back.

## Geometry

| | |
|---|---|
{facts}

## Figures

{_figures(imager, figures)}

{measured_figures(imager)}
{_training(imager)}## Use

```sh
pip install 'tersense[hub]'
```

```python
import tersense

imager = tersense.from_pretrained("{source}")
y = imager.sense(image)  # uint8 in, exact integers out
again = imager.reconstruct(y)
{_ANY_RATE if imager.reconstructor.any_rate else ""}```
"""


def _training(imager: Imager) -> str:
    """Return the command and the settings that made the model, if it tells them."""
    recipe = imager.about.get("recipe")
    if not isinstance(recipe, dict):
        return ""
    tables = {**recipe, "data": imager.about.get("data", {})}
    sections = [
        toml_table(name, {k: v for k, v in table.items() if k not in _PRIVATE and v != ""})
        for name, table in tables.items()
        if isinstance(table, dict)
    ]
    settings = "\n".join(sections)
    return f"""## Training

`tersense train config.toml --set data.train=FOLDER`, with

```toml
{settings}```

"""


def _figures(imager: Imager, figures: Iterable[dict[str, Any]]) -> str:
    """Return a table: the photograph that comes with tersense, measured now, and what was given."""
    photograph = read_image(PHOTOGRAPH)
    y = imager.sense(photograph)
    again = imager.reconstruct(y)
    rows = [("the photograph of `tersense demo`, in color", y.per_pixel, psnr(again, photograph),
             ssim(again, photograph), "`tersense demo -m FOLDER`")]  # fmt: skip
    for result in figures:
        overlapping = result["protocol"] == "overlapping"
        option = f" --stride {result['stride']}" if overlapping else ""
        rows.append((
            f"{result['data']}, {len(result['images'])} images, {result['protocol']}",
            result["measurements_per_pixel"], result["mean"]["psnr"], result["mean"]["ssim"],
            f"`tersense evaluate {result['data']} -m FOLDER{option}`",
        ))  # fmt: skip
    lines = [
        f"| {data} | {rate:.4g} | {_number(quality, 2)} | {_number(likeness, 4)} | {command} |"
        for data, rate, quality, likeness, command in rows
    ]
    head = "| images | measurements per pixel | PSNR (dB) | SSIM | command |\n|---|---|---|---|---|"
    return "\n".join([head, *lines])


def _number(value: float | None, digits: int) -> str:
    return "∞" if value is None else f"{value:.{digits}f}"
