"""`heliograph config`: check, show and explain settings.

In:    a settings file, the environment.
Out:   every problem at once; every value in force and its source; what a key means.
State: none.
Not here: reading and checking (config/), what keys mean (the dataclasses of each package).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.shape import examples, fail, group, say
from heliograph.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from heliograph.config.load import Settings
    from heliograph.config.sections import Key
    from heliograph.config.sources import Option

app = group("Check, show and explain settings.")

Chosen = Annotated[
    Path | None,
    typer.Option("--config", help="The settings file. Default: $HELIOGRAPH_CONFIG, ./heliograph.toml, or none."),
]
AsJson = Annotated[bool, typer.Option("--json", help="As one JSON object.")]


def settings_from(chosen: Path | None, options: Sequence[Option] = ()) -> Settings:
    """The settings that a command would use here and now."""
    import os

    from heliograph.config.load import load_settings

    return load_settings(chosen, os.environ, Path.cwd(), options)


@app.command(epilog=examples("heliograph config check", "heliograph config check /etc/heliograph/heliograph.toml"))
def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The settings file. Default: the one `broker run` would use.")
    ] = None,
    config: Chosen = None,
) -> None:
    """Check settings; every problem is listed."""
    from heliograph.config.load import exposed_passwords
    from heliograph.live.tls import TlsFiles, check_files

    if file is not None and config is not None:
        raise UsageError(f"name the settings file once: {file} or --config {config}, not both")
    settings = settings_from(file or config)
    problems = check_files(TlsFiles.named_in(settings.tls) or TlsFiles())
    if problems:
        fail("\n".join(problems))
    if exposed := exposed_passwords(settings):
        run = f"run: chmod 600 {settings.file}"
        say(f"warning: {settings.file}: others can read it, and {' and '.join(exposed)} has a password; {run}")
    given = sum(origin.source != "default" for origin in settings.origins)
    print(f"{settings.file or 'no settings file'}: good ({given} of {len(settings.origins)} keys set)")


@app.command(
    epilog=examples("heliograph config show", "HELIOGRAPH_LIMITS__LINKS_MAX=100 heliograph config show --json")
)
def show(config: Chosen = None, as_json: AsJson = False) -> None:
    """Show every value in force and where it came from."""
    settings = settings_from(config)
    if as_json:
        import json

        values = {
            each.key: {"value": each.shown, "source": each.source, "typed": each.typed} for each in settings.origins
        }
        print(json.dumps({"file": str(settings.file) if settings.file else None, "values": values}))
        return
    print(f"# {settings.file or 'no settings file'}")
    rows = [(f"{each.key} = {_toml(each.shown)}", each) for each in settings.origins]
    width = min(60, max(len(text) for text, _ in rows))
    for text, each in rows:
        source = f"{each.source} {each.typed}" if each.source in ("environment", "option") else each.source
        print(f"{text:<{width}}  # {source}")


@app.command(
    epilog=examples(
        "heliograph config explain", "heliograph config explain limits", "heliograph config explain limits.links_max"
    )
)
def explain(
    key: Annotated[
        str | None,
        typer.Argument(metavar="KEY", help="A key, such as limits.links_max, or a section. Default: list all."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a key, or list the keys of a section, or all."""
    import json

    from heliograph.config.sections import KEYS

    section = "" if key is None else f"{key.strip('[]')}."  # also as written in the file: [limits]
    listed = {path: each for path, each in KEYS.items() if path.startswith(section)}
    if key is None or (listed and key not in KEYS):
        if as_json:
            print(json.dumps({path: _described(each) for path, each in listed.items()}))
            return
        width = max(len(path) for path in listed)
        for path, each in listed.items():
            print(f"{path:<{width}}  {each.meaning}")
        return
    found = _find(key)
    if as_json:
        print(json.dumps(_described(found)))
        return
    print(f"{found.path}: {found.meaning}")
    for name, value in _described(found).items():
        if name not in ("key", "meaning"):
            print(f"  {name:<12} {_toml(value) if name == 'default' else value}")


def _find(text: str) -> Key:
    from heliograph.config.sections import KEYS, PREFIX
    from heliograph.model.spelling import nearest

    # What a user may have copied: a path with a listener's name or a rule's number, or a variable's name.
    plain = text.removeprefix(PREFIX).replace("__", ".").lower() if text.startswith(PREFIX) else text
    parts = [part.partition("[")[0] for part in plain.split(".")]
    short = f"{'.'.join(parts[:-2])}.{parts[-1]}"
    for path in (".".join(parts), short):
        if path in KEYS:
            return KEYS[path]
    sections = [] if "." in plain else [key.partition(".")[0] for key in KEYS]
    near = nearest(plain, [*dict.fromkeys(sections), *KEYS])
    hint = f"did you mean {near}?" if near else "`heliograph config explain` lists all keys"
    raise UsageError(f"{text}: unknown key; {hint}")


def _described(key: Key) -> dict[str, Any]:
    unit = {"unit": key.unit} if key.unit else {}
    return {
        "key": key.path,
        "meaning": key.meaning,
        "type": key.type_name,
        **unit,
        "default": "(must be given)" if key.required else key.default,
        "allowed": key.allowed,
        "changes": "by a reload" if key.setting.reloads else "by a restart",
        "in file": f"{key.in_file} {key.name}",
        "environment": key.in_environment,
    }


def _toml(value: Any) -> str:
    """A value in the syntax of the file."""
    import json

    if value is None:
        return "(not set)"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(part) for part in value)}]"
    return json.dumps(value, ensure_ascii=False)
