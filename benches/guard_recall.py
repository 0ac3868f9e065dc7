"""Corpora, peers and the table of `guard_recall.sh`.

Every case is one file, so that "found" means the same for each program: it names the file. Nothing of
the corpora is kept in the repository: they are made from the folders that the command line names, by a
fixed seed. Values of a format are drawn from its published expression.
"""

import argparse
import ast
import json
import random
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

# What a rule's expression has behind its secret: the end of a word.
ENDINGS = [r"""(?:[\x60'"\s;]|\\[nr]|$)""", r"""(?:\\?['"\x60]|[\s;]|\\[nr]|$)"""]

# Where a value stands under its vendor's name.
NAMED_PLACES = [
    '{name}_api_token = "{value}"\n',
    "{upper}_API_KEY={value}\n",
    '{{"{name}Token": "{value}"}}\n',
    "{name}:\n  api_key: {value}\n",
    'const {name}Secret = "{value}";\n',
]
FREE_PLACES = ['value = "{value}"\n', "export VALUE={value}\n", "x: {value}\n"]


class Cases:
    """Files of one corpus."""

    def __init__(self, root, name):
        self.folder = root / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.count = 0

    def add(self, text, ending=".txt"):
        data = text if isinstance(text, bytes) else text.encode()
        (self.folder / f"c{self.count:05}{ending}").write_bytes(data)
        self.count += 1

    def keep(self, root, name):
        """A file under its own name: some are judged by it."""
        source, target = root / name, self.folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def drawn(expression, rng):
    """One text that an expression matches: its secret, and the whole."""
    import rstr

    plain = expression
    for ending in ENDINGS:
        plain = plain.replace(ending, "")
    plain = plain.replace("[[:alnum:]]", "[A-Za-z0-9]").replace(r"\z", "$").replace("(?P<", "(?P<")
    plain = re.sub(r"\(\?i\)(?!^)", "", plain) if not plain.startswith("(?i)") else plain[4:]
    plain = plain.replace(r"\x60", "`")
    flags = re.IGNORECASE if "(?i)" in expression[:4] else 0
    generator = long_enough(rstr.Rstr)(rng)
    for _ in range(20):
        text = generator.xeger(plain.replace(r"\s", " "))
        match = re.search(plain, text, flags)
        if match:
            secret = next((group for group in match.groups() if group), match.group(0))
            return secret.strip("'\"` ;"), match.group(0)
    return None


def long_enough(base):
    """The generator draws at most 100 of anything; some tokens are longer."""

    class Generator(base):
        def _handle_repeat(self, least, most, value):
            most = min(most, least + 100)
            times = self._random.randint(least, most)
            return "".join("".join(self._handle_state(state) for state in value) for _ in range(times))

    return Generator


def from_gitleaks(source, free, named, rng, draws=3):
    """Values of the rules of gitleaks and betterleaks: those with a format of their own, and those that
    the vendor's name says."""
    skipped = []
    for rule in tomllib.loads(Path(source).read_text())["rules"]:
        expression = rule.get("regex")
        keywords = rule.get("keywords") or [""]
        if not expression or rule["id"].startswith("generic"):
            continue
        is_named = r"[ \t\w.-]{0,20}" in expression or r"(?:.|[\n\r])" in expression or "(?s:." in expression
        for number in range(draws):
            try:
                if not is_named:
                    secret, whole = drawn(expression, rng)
                    free.add(FREE_PLACES[number % 3].format(value=secret))
                    continue
                group = re.findall(r"[=\s'\"]\{0,5\}\((.*?)\)\(\?:", expression) or re.findall(r"\(([^()?][^()]*(?:\([^()]*\)[^()]*)*)\)(?:\\b|$|\(\?)", expression)
                secret, _ = drawn("(" + group[-1] + ")", rng) if "(?i)" not in expression else drawn("(?i)(" + group[-1] + ")", rng)
                name = keywords[0].strip("_-. ")
                place = NAMED_PLACES[(number + len(name)) % len(NAMED_PLACES)]
                named.add(place.format(name=name, upper=name.upper(), value=secret))
            except Exception as error:  # an expression that Python does not read
                skipped.append(f"{rule['id']}: {error}")
                break
    return skipped


def from_yaml(folder, cases):
    """The examples of rules in YAML (noseyparker, kingfisher): texts that must be found."""
    import yaml

    for file in sorted(Path(folder).rglob("*.yml")):
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            content = yaml.load(file.read_text(), loader)
        except yaml.YAMLError:
            continue
        if not isinstance(content, dict):
            continue
        for rule in content.get("rules") or []:
            if isinstance(rule, dict):
                for example in rule.get("examples") or []:
                    cases.add(str(example) + "\n")


def from_go(folder, cases):
    """The valid inputs in the tests of trufflehog's detectors: the keyword with the valid pattern, and
    inputs that are written out."""
    for file in sorted(Path(folder).rglob("*_test.go")):
        if "integration" in file.name:
            continue
        source = file.read_text()
        text = lambda name: re.search(rf'{name}\s*=\s*"((?:[^"\\]|\\.)+)"', source)
        valid, keyword = text("validPattern"), text("keyword")
        if valid and keyword and "\\" not in valid.group(1):
            cases.add(f"{keyword.group(1)} token = '{valid.group(1)}'\n")
        for written in re.finditer(r'input:\s*`([^`]+)`,\s*want:\s*\[\]string\{\s*["`]', source):
            cases.add(written.group(1))


def from_snapshots(folder, cases):
    """The inputs that secretlint's rules must refuse."""
    for file in sorted(Path(folder).rglob("input*")):
        if file.is_file() and file.parent.name.startswith("ng"):
            cases.add(file.read_bytes(), file.suffix or ".txt")


def from_detect_secrets(folder, cases):
    """The payloads that the tests of detect-secrets' plugins flag."""
    for file in sorted(Path(folder).glob("*_test.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Tuple) and len(node.elts) == 2 and all(isinstance(part, ast.Constant) for part in node.elts):
                text, flagged = (part.value for part in node.elts)
                if isinstance(text, str) and flagged is True:
                    cases.add(text + "\n")


def from_credsweeper(folder, cases):
    """The samples in which CredSweeper's own tests expect a credential."""
    expected = json.loads((folder / "data/output.json").read_text())
    for name in sorted({line["path"].split("samples/")[-1] for hit in expected for line in hit["line_data_list"]}):
        cases.keep(folder / "samples", name)


def from_leaky_repo(folder, cases):
    """The files with at least one line that is a risk, by the list of leaky-repo."""
    for line in (folder / ".leaky-meta/secrets.csv").read_text().splitlines():
        name, *counts = line.split(",")
        if len(counts) == 2 and counts[0].strip().isdigit() and int(counts[0]) > 0:
            cases.keep(folder, name)


def from_whispers(folder, cases):
    """The fixtures in which the tests of whispers expect a secret."""
    tests = (folder / "tests/unit/core/test_secrets.py").read_text()
    found = re.findall(r'\(\s*"([^"]+)",\s*(?:"[^"]*",\s*)?(?:[1-9]|\["[^"])', tests)
    for name in sorted(set(found)):
        cases.keep(folder / "tests/fixtures", name)


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def ours(folder, guard):
    done = run([guard, "guard", "scan", "--json", "."], cwd=folder)
    if done.returncode not in (0, 1):
        sys.exit(f"{guard}: {done.stderr}")
    blocked, flagged = set(), set()
    for line in done.stdout.splitlines():
        hit = json.loads(line)
        flagged.add(hit["path"])
        if hit["verdict"] == "blocks":
            blocked.add(hit["path"])
    return blocked, flagged


def names(found, folder):
    root = str(folder.resolve()) + "/"
    return {path.removeprefix(root).removeprefix("./") for path in found}


def betterleaks(folder, program, confidence):
    report = folder.resolve().parent / f"{folder.name}.betterleaks.jsonl"
    run([program, "fs", ".", "--no-banner", "-s", "-o", str(report), *confidence], cwd=folder)
    found = set()
    if report.exists():
        for line in report.read_text().splitlines():
            hit = json.loads(line)
            found.add(path_in(hit))
        report.unlink()
    return names(found, folder)


def path_in(hit):
    """The path in a finding of whatever layout."""
    for key in ("File", "file", "path", "file_path"):
        if isinstance(hit.get(key), str):
            return hit[key]
    for value in hit.values():
        if isinstance(value, dict) and (found := path_in(value)):
            return found
    return ""


def kingfisher(folder, program, confidence):
    report = folder.resolve().parent / f"{folder.name}.kingfisher.jsonl"
    run([program, "scan", ".", "--no-validate", "--no-update-check", "--git-history", "none", "--format", "jsonl",
         "-o", str(report), "--confidence", confidence, "--no-dedup"], cwd=folder)
    found = set()
    if report.exists():
        for line in report.read_text().splitlines():
            hit = json.loads(line)
            for one in hit if isinstance(hit, list) else [hit]:
                if isinstance(one, dict) and path_in(one):
                    found.add(path_in(one))
        report.unlink()
    return names(found, folder)


def detect_secrets(folder, program):
    done = run([program, "-C", ".", "scan", "--all-files", "--no-verify", "."], cwd=folder)
    return names(json.loads(done.stdout or "{}").get("results", {}), folder)


def credsweeper(folder, program):
    report = folder.resolve().parent / f"{folder.name}.credsweeper.json"
    run([program, "--path", ".", "--save-json", str(report), "--log", "critical"], cwd=folder)
    found = set()
    if report.exists():
        for hit in json.loads(report.read_text()):
            found.update(line["path"] for line in hit["line_data_list"])
        report.unlink()
    return names(found, folder)


def peers(tools):
    """Every program with the way to ask it; those that are not there are said."""
    known = {
        "betterleaks, high": lambda folder, p: betterleaks(folder, p, ["--confidence", "high"]),
        "betterleaks, all": lambda folder, p: betterleaks(folder, p, []),
        "kingfisher, medium": lambda folder, p: kingfisher(folder, p, "medium"),
        "kingfisher, low": lambda folder, p: kingfisher(folder, p, "low"),
        "detect-secrets": detect_secrets,
        "CredSweeper": credsweeper,
    }
    for name, ask in known.items():
        program = tools / name.split(",")[0].lower()
        if program.exists():
            yield name, lambda folder, ask=ask, program=program: ask(folder, str(program.resolve()))
        else:
            print(f"{name}: not here, not measured", file=sys.stderr)


def measure(root, guard, tools, only):
    print("| corpus | cases | ours, blocked | ours, flagged | " + " | ".join(name for name, _ in peers(tools)) + " |")
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        if only and folder.name not in only:
            continue
        files = [path for path in folder.rglob("*") if path.is_file()]
        count = len(files)
        per = 1000 / count if folder.name.startswith("clean") else 100 / count
        blocked, flagged = ours(folder, guard)
        cells = [len(blocked), len(flagged)] + [len(ask(folder)) for _, ask in peers(tools)]
        print(f"| {folder.name} | {count} | " + " | ".join(f"{cell * per:.1f}" for cell in cells) + " |", flush=True)


def main():
    line = argparse.ArgumentParser(description=__doc__)
    line.add_argument("--cases", type=Path, required=True, help="where the cases are made and read")
    line.add_argument("--gitleaks", type=Path, help="a copy of gitleaks")
    line.add_argument("--betterleaks", type=Path, help="a copy of betterleaks")
    line.add_argument("--noseyparker", type=Path, help="a copy of noseyparker")
    line.add_argument("--kingfisher", type=Path, help="a copy of kingfisher")
    line.add_argument("--trufflehog", type=Path, help="a copy of trufflehog")
    line.add_argument("--secretlint", type=Path, help="a copy of secretlint")
    line.add_argument("--detect-secrets", type=Path, help="a copy of detect-secrets")
    line.add_argument("--credsweeper", type=Path, help="a copy of CredSweeper")
    line.add_argument("--leaky-repo", type=Path, help="a copy of leaky-repo")
    line.add_argument("--whispers", type=Path, help="a copy of whispers")
    line.add_argument("--guard", help="the program that judges; without it only the cases are made")
    line.add_argument("--tools", type=Path, default=Path("bin"), help="where the peers' programs are")
    line.add_argument("--only", nargs="*")
    given = line.parse_args()
    for name, at in (("gitleaks", given.gitleaks), ("betterleaks", given.betterleaks)):
        if at:
            rng = random.Random(f"{name} 1")
            free, named = Cases(given.cases, f"{name}-formats"), Cases(given.cases, f"{name}-named")
            for skipped in from_gitleaks(at / f"config/{name}.toml", free, named, rng):
                print(f"not drawn: {skipped}", file=sys.stderr)
    for name, at in (("noseyparker-examples", given.noseyparker), ("kingfisher-examples", given.kingfisher)):
        if at:
            from_yaml(at, Cases(given.cases, name))
    if given.trufflehog:
        from_go(given.trufflehog / "pkg/detectors", Cases(given.cases, "trufflehog-inputs"))
    if given.secretlint:
        from_snapshots(given.secretlint, Cases(given.cases, "secretlint-inputs"))
    if given.detect_secrets:
        from_detect_secrets(given.detect_secrets / "tests/plugins", Cases(given.cases, "detect-secrets-payloads"))
    if given.credsweeper:
        from_credsweeper(given.credsweeper / "tests", Cases(given.cases, "credsweeper-samples"))
    if given.leaky_repo:
        from_leaky_repo(given.leaky_repo, Cases(given.cases, "leaky-repo"))
    if given.whispers:
        from_whispers(given.whispers, Cases(given.cases, "whispers-fixtures"))
    if given.guard:
        measure(given.cases, given.guard, given.tools, given.only)


if __name__ == "__main__":
    main()
