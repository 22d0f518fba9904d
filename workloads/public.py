"""Public traces that can be fetched, each pinned to a commit and a checksum."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workloads.errors import BadInput, Fault, did_you_mean


@dataclass(frozen=True, slots=True)
class Dataset:
    """One file of a public repository.

    Attributes
    ----------
    about
        What it holds.
    licence
        Under which it is published.
    url
        Where it lies, at a fixed commit.
    sha256
        Checksum of its bytes.
    """

    about: str
    licence: str
    url: str
    sha256: str

    @property
    def file(self) -> str:
        """Name of the file."""
        return self.url.rsplit("/", 1)[-1]


_RAW = "https://raw.githubusercontent.com"

DATASETS: dict[str, Dataset] = {
    "azure-conversation-2023": Dataset(
        "19,366 conversation requests of Azure's LLM inference traces of 2023 (Splitwise, ISCA 2024)",
        "CC-BY-4.0",
        f"{_RAW}/Azure/AzurePublicDataset/b469a113cedca53ddc3bdea71a143dc4b7d8700c/data/AzureLLMInferenceTrace_conv.csv",
        "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
    ),
    "mooncake-synthetic": Dataset(
        "3,993 requests with block hashes (Mooncake, FAST 2025)",
        "Apache-2.0",
        f"{_RAW}/kvcache-ai/Mooncake/3b5a594133958449a1feaf1c9e0fc1b553e34a28/FAST25-release/traces/synthetic_trace.jsonl",
        "bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131",
    ),
    "sharegpt-lengths": Dataset(
        "30,731 prompt and answer lengths of ShareGPT (Sarathi-Serve)",
        "Apache-2.0",
        f"{_RAW}/microsoft/sarathi-serve/72339db5b120614033b317880ad3a05a5e4c9415/data/processed_traces/"
        "sharegpt_8k_filtered_stats_llama2_tokenizer.csv",
        "6d6c296302a853e2669a674a96f269283e60c57e60363bd450588a1066919f9f",
    ),
}


def download(name: str, folder: Path) -> Path:
    """Fetch a data set into a folder, unless it is there already, and return the file.

    Raises
    ------
    workloads.errors.BadInput
        If there is no such data set, pooch is not installed, the server does not answer, or the bytes have another
        checksum; then no file is left.
    """
    if name not in DATASETS:
        known = ", ".join(DATASETS)
        raise BadInput(Fault(f"no such data set {name!r}; allowed: {known}{did_you_mean(name, DATASETS)}"))
    try:
        import pooch
    except ModuleNotFoundError:
        raise BadInput(Fault("downloads need pooch: pip install 'slotsim[data]'")) from None
    data = DATASETS[name]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return Path(pooch.retrieve(data.url, f"sha256:{data.sha256}", fname=data.file, path=folder))
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; another checksum is a ValueError
        reason = " ".join(str(error).split())
        raise BadInput(Fault(f"was not fetched: {reason}", data.url)) from None
