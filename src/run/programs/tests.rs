//! Programs that are found, changed and started through an interpreter.

use std::os::unix::fs::symlink;

use super::*;

/// Creates executable files and a search path of the folders `one` and `two`.
fn create_programs(files: &[(&str, &str)]) -> (tempfile::TempDir, OsString) {
    let dir = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let folders = ["one", "two"].map(|name| dir.path().join(name));
    let search_path = std::env::join_paths(folders).unwrap();
    (dir, search_path)
}

fn find(name: &str, search_path: &OsStr) -> Program {
    Program::find(name.as_ref(), search_path).unwrap()
}

#[test]
fn finds_the_first_program_of_a_name_and_keeps_it() {
    let (dir, search_path) = create_programs(&[("two/agent", "ELF")]);
    let agent = find("agent", &search_path);
    assert_eq!(agent.path(), dir.path().join("two/agent"));
    create_program(dir.path(), "one/agent");
    assert_eq!(agent.verify_unchanged(), Ok(()));
    let (program, args) = agent.command();
    assert_eq!(program, dir.path().join("two/agent"));
    assert!(args.is_empty());
}

fn create_program(dir: &Path, file: &str) {
    let path = dir.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "another").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
}

type Change = fn(&Path);

#[test]
fn detects_every_change_of_a_program() {
    let changes: [(&str, Change); 5] = [
        ("written", |dir| {
            std::fs::write(dir.join("real"), "EVIL").unwrap()
        }),
        ("replaced", |dir| {
            std::fs::write(dir.join("new"), "EVIL").unwrap();
            std::fs::rename(dir.join("new"), dir.join("real")).unwrap();
        }),
        ("relinked", |dir| {
            std::fs::write(dir.join("new"), "PROG").unwrap();
            std::fs::remove_file(dir.join("one/agent")).unwrap();
            symlink(dir.join("new"), dir.join("one/agent")).unwrap();
        }),
        ("removed", |dir| {
            std::fs::remove_file(dir.join("real")).unwrap()
        }),
        ("interpreter", |dir| {
            std::fs::write(dir.join("two/node"), "EVIL").unwrap()
        }),
    ];
    for (what, change) in changes {
        let script = "#!/usr/bin/env node\nPROG";
        let (dir, search_path) =
            create_programs(&[("real", script), ("two/node", "NODE"), ("one/x", "")]);
        symlink(dir.path().join("real"), dir.path().join("one/agent")).unwrap();
        let agent = find("agent", &search_path);
        assert_eq!(agent.verify_unchanged(), Ok(()), "{what}");
        change(dir.path());
        assert!(
            matches!(agent.verify_unchanged(), Err(ProgramError::Changed(_))),
            "{what}"
        );
    }
}

#[test]
fn starts_a_script_with_its_interpreter() {
    let rows: [(&str, Option<&[&str]>); 6] = [
        ("#!/usr/bin/env node\n", Some(&["two/node"])),
        (
            "#!/usr/bin/env -S node --no-warnings x\n",
            Some(&["two/node", "--no-warnings", "x"]),
        ),
        ("#! /bin/sh -e\n", Some(&["/bin/sh", "-e"])),
        ("#!/usr/bin/env -i node\n", None),
        ("#!\n", None),
        ("\x7fELF", None),
    ];
    for (start, expected) in rows {
        let (dir, search_path) = create_programs(&[("one/agent", start), ("two/node", "NODE")]);
        let agent = find("agent", &search_path);
        let path = dir.path().join("one/agent");
        let (program, args) = agent.command();
        let mut all = vec![PathBuf::from(program)];
        all.extend(args.into_iter().map(PathBuf::from));
        let expected = expected.unwrap_or_default().iter().enumerate();
        let mut expected: Vec<PathBuf> = expected
            .map(|(at, word)| match at {
                // Joining an absolute path yields that path.
                0 => dir.path().join(word),
                _ => PathBuf::from(word),
            })
            .collect();
        expected.push(path);
        assert_eq!(all, expected, "{start:?}");
    }
}

#[test]
fn names_what_cannot_be_found() {
    let (dir, search_path) = create_programs(&[("one/script", "#!/usr/bin/env nowhere\n")]);
    std::fs::write(dir.path().join("one/plain"), "").unwrap();
    let error = |name: &str| Program::find(name.as_ref(), &search_path).unwrap_err();
    for (name, prefix) in [
        (
            "absent",
            "absent is not installed: it is in none of the folders /",
        ),
        ("plain", "plain is not installed"),
        ("script", "nowhere is not installed"),
        ("./agent", "./agent is not an absolute path"),
        ("/nowhere/agent", "/nowhere/agent cannot be read: "),
    ] {
        let message = error(name).to_string();
        assert!(message.starts_with(prefix), "{message}");
    }
    let in_the_tree = Program::find("script".as_ref(), ".::one".as_ref());
    assert!(in_the_tree.is_err(), "{in_the_tree:?}");
}
