"""`anybatch doctor`: what works on this machine, and how fast it is."""

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import torch

from anybatch import envs, native, presets
from anybatch.algorithms import algorithm_of
from anybatch.cli.flags import DoctorFlags
from anybatch.cli.parser import Argv, parse
from anybatch.config import EnvConfig, NetworkConfig
from anybatch.distributed import group
from anybatch.envs.layout import ObsLayout
from anybatch.errors import UserError
from anybatch.machine import WITHOUT_AMX, bf16_fails, has_fast_bf16, vector_instructions
from anybatch.networks import make
from anybatch.networks.encoders import compute_in_bf16
from anybatch.networks.flat import FlatParameters
from anybatch.text import counted

PACKAGES = ("torch", "gymnasium", "safetensors", "tensorboard")
EXTRAS = {
    "envpool": "envpool",
    "mujoco": "mujoco",
    "imageio-ffmpeg": "video",
    "pillow": "video",
    "matplotlib": "plot",
    "scipy": "lab",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "huggingface_hub": "hub",
    "optuna": "tune",
    "ray": "ray",
    "wandb": "wandb",
    "trackio": "trackio",
    "stable-baselines3": "bench",
    "mkdocs-material": "docs",
}
"""Optional packages, and the extra that installs each."""
PROBES = (
    "CartPole-v1",
    "Breakout-v5",
    "CoinrunHard-v0",
    "HalfCheetah-v4",
    "gym:CartPole-v1",
    "minatar:Breakout",
)
MICROBATCHES = (32, 64, 128, 256, 512, 1024)
IMAGES: dict[Literal["nature", "impala"], tuple[int, ...]] = {"nature": (4, 84, 84), "impala": (3, 64, 64)}
"""The measured encoders, and an image for each."""
BF16_MICROBATCH = 128
SECONDS_PER_MEASUREMENT = 0.4


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    works: bool
    finding: str


def doctor(words: list[str]) -> None:
    if parse(DoctorFlags(), Argv(words)).json:
        print(json.dumps([asdict(check) for check in checks()], indent=2, ensure_ascii=False))
        return
    width = max(map(len, (*PACKAGES, *EXTRAS, *PROBES, *map(microbatch_check, IMAGES))))
    for check in checks():
        # Print immediately: the next check may take seconds.
        print(f"{'ok ' if check.works else 'no '} {check.name:{width}}  {check.finding}", flush=True)


def checks() -> Iterator[Check]:
    yield machine()
    yield native_code()
    yield bf16()
    yield ranks()
    yield from packages()
    yield from map(engine, PROBES)
    yield from map(microbatches, IMAGES)


def machine() -> Check:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    vectors = ", ".join(vector_instructions()) or "no known vector instructions"
    facts = (
        f"{counted(os.cpu_count() or 1, 'core')} ({vectors}), {device}, Python {platform.python_version()}"
    )
    return Check("machine", True, facts)


def bf16() -> Check:
    """Whether `--precision bf16` is faster here; measured on images unless a GPU supports it."""
    if torch.cuda.is_available() and torch.cuda.is_bf16_supported():
        return Check("bf16", True, "the GPU supports it; its speed was not measured")
    if bf16_fails():
        return Check("bf16", False, f"this machine reports AMX but does not run it: set {WITHOUT_AMX}")
    if not has_fast_bf16():
        return Check("bf16", False, "neither processor nor GPU supports it: --precision bf16 would be slower")
    rates = [images_per_second("nature", BF16_MICROBATCH, bf16=bf16) for bf16 in (False, True)]
    ratio = rates[1] / rates[0]
    return Check("bf16", ratio > 1, f"--precision bf16 trains images {ratio:.2f} times as fast as float32")


def ranks() -> Check:
    """Whether several ranks can exchange data here, over the device that `--ranks` uses."""
    try:
        backends = group.check_exchange()
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0]
        return Check("ranks", False, f"processes cannot exchange data over the loopback device ({reason})")
    return Check("ranks", True, f"{', '.join(backends)}; --ranks N trains in N processes on this machine")


def native_code() -> Check:
    """Whether small networks, classic control and MinAtar can run as native code, and what a run uses."""
    try:
        native.library("float32")
    except native.CompileError as error:
        return Check(
            "native code",
            False,
            f"{error}; a small network uses torch, which is several times slower, and there is no MinAtar",
        )
    config = presets.load(presets.DEFAULT).config
    env = envs.make(config.env, config.env_config, seeds=range(config.num_envs))
    backend = algorithm_of(config).start(config, env).backend
    env.close()
    return Check("native code", backend.is_native, f"a small network uses {backend.reason}")


def packages() -> list[Check]:
    checks: list[Check] = []
    for name in (*PACKAGES, *EXTRAS):
        try:
            checks.append(Check(name, True, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            wanted = f"'anybatch[{EXTRAS[name]}]'" if name in EXTRAS else name
            optional = " (optional)" * (name in EXTRAS)
            checks.append(
                Check(name, False, f"not installed{optional}; install it with pip install {wanted}")
            )
    return checks


def engine(env_id: str) -> Check:
    """Whether an environment runs, and the steps per second of 64 of them."""
    try:
        env = envs.make(env_id, EnvConfig(), seeds=range(64))
    except UserError as error:
        return Check(env_id, False, str(error))
    env.reset()
    spec = env.spec
    number = np.float32 if spec.is_continuous else np.int64
    action = np.zeros((64, *spec.action_shape), dtype=number)
    rate = 64 * calls_per_second(lambda: env.step(action))
    env.close()
    return Check(env_id, True, f"{spec.engine}: {rate:,.0f} env steps/s with 64 envs")


def microbatches(encoder: Literal["nature", "impala"]) -> Check:
    """Images per second of a training pass, by microbatch; the fastest is recommended."""
    rates = {size: images_per_second(encoder, size) for size in MICROBATCHES}
    best = max(rates, key=lambda size: rates[size])
    speeds = ", ".join(f"{size}: {rate:,.0f}" for size, rate in rates.items())
    threads = counted(torch.get_num_threads(), "thread")
    return Check(
        microbatch_check(encoder),
        True,
        f"--microbatch {best} is fastest with {threads} (images/s {speeds})",
    )


def microbatch_check(encoder: str) -> str:
    return f"{encoder} microbatch"


def images_per_second(encoder: Literal["nature", "impala"], size: int, *, bf16: bool = False) -> float:
    """Images per second of training passes over microbatches of `size`."""
    shape = IMAGES[encoder]
    network = make(
        NetworkConfig(encoder=encoder, heads="shared"),
        layout=ObsLayout.single(shape, "image"),
        num_actions=15,
        continuous=False,
        generator_seed=0,
    )
    if bf16:
        compute_in_bf16(network)
    flat = FlatParameters(network)
    obs = torch.zeros(size, *shape, dtype=torch.uint8)

    def training_pass() -> None:
        flat.grads.zero_()
        policy, value = network(obs)
        (policy.entropy().sum() + value.sum()).backward()

    return size * calls_per_second(training_pass)


def calls_per_second(call: Callable[[], object]) -> float:
    call()
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS_PER_MEASUREMENT:
        call()
        calls += 1
    return calls / (time.perf_counter() - start)
