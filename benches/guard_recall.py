"""Generates the corpora of `guard_recall.sh`, runs the peers and prints the table.

Every case is one file. A program finds a case if it reports the file. The repository contains no corpora: they
are generated with a fixed seed from the folders given on the command line. Values of a format are generated from
its published regular expression.
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

# Ends of words that rule expressions contain after the secret.
ENDINGS = [r"""(?:[\x60'"\s;]|\\[nr]|$)""", r"""(?:\\?['"\x60]|[\s;]|\\[nr]|$)"""]

# Templates of a value with its vendor's name.
NAMED_TEMPLATES = [
    '{name}_api_token = "{value}"\n',
    "{upper}_API_KEY={value}\n",
    '{{"{name}Token": "{value}"}}\n',
    "{name}:\n  api_key: {value}\n",
    'const {name}Secret = "{value}";\n',
]
# Templates of a value with a unique format.
UNIQUE_TEMPLATES = ['value = "{value}"\n', "export VALUE={value}\n", "x: {value}\n"]


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
        """Copies a file under its own name, because some rules match names."""
        source, target = root / name, self.folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def generate(expression, rng):
    """Generates a text that matches an expression. Returns the secret and the whole text."""
    import rstr

    plain = expression
    for ending in ENDINGS:
        plain = plain.replace(ending, "")
    plain = plain.replace("[[:alnum:]]", "[A-Za-z0-9]").replace(r"\z", "$").replace("(?P<", "(?P<")
    plain = re.sub(r"\(\?i\)(?!^)", "", plain) if not plain.startswith("(?i)") else plain[4:]
    plain = plain.replace(r"\x60", "`")
    flags = re.IGNORECASE if "(?i)" in expression[:4] else 0
    generator = with_long_repeats(rstr.Rstr)(rng)
    for _ in range(20):
        text = generator.xeger(plain.replace(r"\s", " "))
        match = re.search(plain, text, flags)
        if match:
            secret = next((group for group in match.groups() if group), match.group(0))
            return secret.strip("'\"` ;"), match.group(0)
    return None


def with_long_repeats(base):
    """Extends the generator, which repeats a part at most 100 times by default; some tokens are longer."""

    class Generator(base):
        def _handle_repeat(self, least, most, value):
            most = min(most, least + 100)
            times = self._random.randint(least, most)
            return "".join("".join(self._handle_state(state) for state in value) for _ in range(times))

    return Generator


def from_gitleaks(source, unique, named, rng, samples=3):
    """Generates values for the rules of gitleaks and betterleaks: `unique` for rules with a unique format, `named`
    for rules that need the vendor's name. Returns the rules that could not be used."""
    skipped = []
    for rule in tomllib.loads(Path(source).read_text())["rules"]:
        expression = rule.get("regex")
        keywords = rule.get("keywords") or [""]
        if not expression or rule["id"].startswith("generic"):
            continue
        is_named = r"[ \t\w.-]{0,20}" in expression or r"(?:.|[\n\r])" in expression or "(?s:." in expression
        for number in range(samples):
            try:
                if not is_named:
                    secret, _ = generate(expression, rng)
                    unique.add(UNIQUE_TEMPLATES[number % 3].format(value=secret))
                    continue
                group = re.findall(r"[=\s'\"]\{0,5\}\((.*?)\)\(\?:", expression) or re.findall(r"\(([^()?][^()]*(?:\([^()]*\)[^()]*)*)\)(?:\\b|$|\(\?)", expression)
                secret, _ = generate("(" + group[-1] + ")", rng) if "(?i)" not in expression else generate("(?i)(" + group[-1] + ")", rng)
                name = keywords[0].strip("_-. ")
                template = NAMED_TEMPLATES[(number + len(name)) % len(NAMED_TEMPLATES)]
                named.add(template.format(name=name, upper=name.upper(), value=secret))
            except Exception as error:  # Python does not support every expression.
                skipped.append(f"{rule['id']}: {error}")
                break
    return skipped


def from_yaml(folder, cases):
    """Adds the examples of YAML rules (noseyparker, kingfisher), which must be found."""
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
    """Adds the valid inputs from the tests of trufflehog's detectors: the keyword with the valid pattern, and literal
    inputs."""
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
    """Adds the inputs that secretlint's rules must reject."""
    for file in sorted(Path(folder).rglob("input*")):
        if file.is_file() and file.parent.name.startswith("ng"):
            cases.add(file.read_bytes(), file.suffix or ".txt")


def from_detect_secrets(folder, cases):
    """Adds the payloads that the tests of detect-secrets' plugins flag."""
    for file in sorted(Path(folder).glob("*_test.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Tuple) and len(node.elts) == 2 and all(isinstance(part, ast.Constant) for part in node.elts):
                text, flagged = (part.value for part in node.elts)
                if isinstance(text, str) and flagged is True:
                    cases.add(text + "\n")


def from_credsweeper(folder, cases):
    """Adds the samples in which CredSweeper's own tests expect a credential."""
    expected = json.loads((folder / "data/output.json").read_text())
    for name in sorted({line["path"].split("samples/")[-1] for hit in expected for line in hit["line_data_list"]}):
        cases.keep(folder / "samples", name)


def from_leaky_repo(folder, cases):
    """Adds the files that leaky-repo lists with at least one risky line."""
    for line in (folder / ".leaky-meta/secrets.csv").read_text().splitlines():
        name, *counts = line.split(",")
        if len(counts) == 2 and counts[0].strip().isdigit() and int(counts[0]) > 0:
            cases.keep(folder, name)


def from_whispers(folder, cases):
    """Adds the fixtures in which the tests of whispers expect a secret."""
    tests = (folder / "tests/unit/core/test_secrets.py").read_text()
    found = re.findall(r'\(\s*"([^"]+)",\s*(?:"[^"]*",\s*)?(?:[1-9]|\["[^"])', tests)
    for name in sorted(set(found)):
        cases.keep(folder / "tests/fixtures", name)


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def scan_with_guard(folder, guard):
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


def relative_paths(found, folder):
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
    return relative_paths(found, folder)


def path_in(hit):
    """Returns the path in a finding of any layout."""
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
    return relative_paths(found, folder)


def detect_secrets(folder, program):
    done = run([program, "-C", ".", "scan", "--all-files", "--no-verify", "."], cwd=folder)
    return relative_paths(json.loads(done.stdout or "{}").get("results", {}), folder)


def credsweeper(folder, program):
    report = folder.resolve().parent / f"{folder.name}.credsweeper.json"
    run([program, "--path", ".", "--save-json", str(report), "--log", "critical"], cwd=folder)
    found = set()
    if report.exists():
        for hit in json.loads(report.read_text()):
            found.update(line["path"] for line in hit["line_data_list"])
        report.unlink()
    return relative_paths(found, folder)


def peers(tools):
    """Yields the name and the scan function of each installed peer. Reports missing peers."""
    known = {
        "betterleaks, high": lambda folder, p: betterleaks(folder, p, ["--confidence", "high"]),
        "betterleaks, all": lambda folder, p: betterleaks(folder, p, []),
        "kingfisher, medium": lambda folder, p: kingfisher(folder, p, "medium"),
        "kingfisher, low": lambda folder, p: kingfisher(folder, p, "low"),
        "detect-secrets": detect_secrets,
        "CredSweeper": credsweeper,
    }
    for name, scan in known.items():
        program = tools / name.split(",")[0].lower()
        if program.exists():
            yield name, lambda folder, scan=scan, program=program: scan(folder, str(program.resolve()))
        else:
            print(f"{name}: not installed, not measured", file=sys.stderr)


def measure(root, guard, tools, only):
    print("| corpus | cases | guard, blocked | guard, flagged | " + " | ".join(name for name, _ in peers(tools)) + " |")
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        if only and folder.name not in only:
            continue
        files = [path for path in folder.rglob("*") if path.is_file()]
        count = len(files)
        per = 1000 / count if folder.name.startswith("clean") else 100 / count
        blocked, flagged = scan_with_guard(folder, guard)
        cells = [len(blocked), len(flagged)] + [len(scan(folder)) for _, scan in peers(tools)]
        print(f"| {folder.name} | {count} | " + " | ".join(f"{cell * per:.1f}" for cell in cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, required=True, help="folder in which the cases are generated and read")
    parser.add_argument("--gitleaks", type=Path, help="folder with a copy of gitleaks")
    parser.add_argument("--betterleaks", type=Path, help="folder with a copy of betterleaks")
    parser.add_argument("--noseyparker", type=Path, help="folder with a copy of noseyparker")
    parser.add_argument("--kingfisher", type=Path, help="folder with a copy of kingfisher")
    parser.add_argument("--trufflehog", type=Path, help="folder with a copy of trufflehog")
    parser.add_argument("--secretlint", type=Path, help="folder with a copy of secretlint")
    parser.add_argument("--detect-secrets", type=Path, help="folder with a copy of detect-secrets")
    parser.add_argument("--credsweeper", type=Path, help="folder with a copy of CredSweeper")
    parser.add_argument("--leaky-repo", type=Path, help="folder with a copy of leaky-repo")
    parser.add_argument("--whispers", type=Path, help="folder with a copy of whispers")
    parser.add_argument("--guard", help="agent-implement binary; without it only the cases are generated")
    parser.add_argument("--tools", type=Path, default=Path("bin"), help="folder with the programs of the peers")
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    for name, at in (("gitleaks", args.gitleaks), ("betterleaks", args.betterleaks)):
        if at:
            rng = random.Random(f"{name} 1")
            unique, named = Cases(args.cases, f"{name}-formats"), Cases(args.cases, f"{name}-named")
            for skipped in from_gitleaks(at / f"config/{name}.toml", unique, named, rng):
                print(f"rule skipped: {skipped}", file=sys.stderr)
    for name, at in (("noseyparker-examples", args.noseyparker), ("kingfisher-examples", args.kingfisher)):
        if at:
            from_yaml(at, Cases(args.cases, name))
    if args.trufflehog:
        from_go(args.trufflehog / "pkg/detectors", Cases(args.cases, "trufflehog-inputs"))
    if args.secretlint:
        from_snapshots(args.secretlint, Cases(args.cases, "secretlint-inputs"))
    if args.detect_secrets:
        from_detect_secrets(args.detect_secrets / "tests/plugins", Cases(args.cases, "detect-secrets-payloads"))
    if args.credsweeper:
        from_credsweeper(args.credsweeper / "tests", Cases(args.cases, "credsweeper-samples"))
    if args.leaky_repo:
        from_leaky_repo(args.leaky_repo, Cases(args.cases, "leaky-repo"))
    if args.whispers:
        from_whispers(args.whispers, Cases(args.cases, "whispers-fixtures"))
    if args.guard:
        measure(args.cases, args.guard, args.tools, args.only)


if __name__ == "__main__":
    main()
