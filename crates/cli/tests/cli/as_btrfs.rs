//! The command, run through links with the names of programs of btrfs-progs, compared with btrfs-progs.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::process::empty_volume;

/// A folder with a link to the command.
struct Link {
    dir: tempfile::TempDir,
    name: &'static str,
}

impl Link {
    fn new(name: &'static str) -> Link {
        let dir = tempfile::tempdir().unwrap();
        symlink(env!("CARGO_BIN_EXE_ubtrfs"), dir.path().join(name)).unwrap();
        Link { dir, name }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(self.name)
    }

    fn run(&self, line: &str) -> Output {
        let words = line.split_whitespace();
        Command::new(self.path()).args(words).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Lines with the exit codes of btrfs-progs 6.14, and whether there is output on standard output.
const LINES: &[(&str, i32, bool)] = &[
    ("help", 0, true),
    ("help --", 0, true),
    ("help -h", 0, true),
    ("help --full", 0, true),
    ("help --box", 0, true),
    ("help nothing", 0, true),
    ("--help", 0, true),
    ("--help --full", 0, true),
    ("--full --help", 0, true),
    ("--full", 1, true),
    ("", 1, true),
    ("--format json", 1, true),
    ("-h", 129, false),
    ("-V", 129, false),
    ("-x", 129, false),
    ("--nothing", 129, false),
    ("--ver", 129, false),
    ("--version=1", 129, false),
    ("--version", 0, true),
    ("--version more", 0, true),
    ("-vq --log quiet version", 0, true),
    ("--log=invalid help", 1, false),
    ("--log= version", 1, false),
    ("--log", 129, false),
    ("--format yaml version", 1, false),
    ("--form yaml --help", 1, false),
    ("--version --format yaml", 1, false),
    ("--param x --format=json vers", 0, true),
    ("version more", 0, true),
    ("version --help", 0, true),
    ("nothing", 1, true),
    ("s", 1, false),
    ("se", 1, false),
    ("q", 1, false),
    ("subvolume s", 1, false),
    ("subvolume nothing", 1, false),
    ("subvolume -h", 1, false),
    ("subvolume --help", 0, true),
    ("sub l --help", 0, true),
    ("sub l -h", 1, false),
    ("sub l", 1, false),
    ("filesystem d", 1, false),
    ("i dump-super", 1, false),
    ("i dump-s --help", 0, true),
    ("ls /", 1, true),
    ("mount", 1, true),
];

/// The meaning of a shortened name.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Unknown,
    /// One of several, sorted by name.
    Ambiguous(Vec<String>),
    One(String),
}

impl Meaning {
    /// Parses the answer to a request for help on a name in a group.
    fn of(group: &str, answer: &Output) -> Meaning {
        let (shown, said) = (text(&answer.stdout), text(&answer.stderr));
        if said.contains(": ambiguous token ") {
            let names = said.lines().filter_map(|line| line.strip_prefix('\t'));
            let mut names: Vec<String> = names.map(str::to_owned).collect();
            names.sort();
            return Meaning::Ambiguous(names);
        }
        if said.contains(": unknown token ") {
            return Meaning::Unknown;
        }
        let both = shown + &said;
        let begin = ["sage: btrfs ", "ERROR: '"]
            .map(|before| format!("{before}{group} "))
            .into_iter()
            .find_map(|before| Some(both.find(&before)? + before.len()));
        let rest = &both[begin.unwrap_or_else(|| panic!("{group}: {both}"))..];
        let is_of_name = |letter: &char| letter.is_ascii_lowercase() || *letter == '-';
        let name: String = rest.chars().take_while(is_of_name).collect();
        // The help of ours has the first name of a command only.
        let is_second_name = (group, &*name) == ("device", "delete");
        Meaning::One(if is_second_name {
            "remove".to_owned()
        } else {
            name
        })
    }
}

#[test]
fn shortened_names_mean_in_each_group_what_they_do_in_btrfs_progs() {
    if Command::new("btrfs").arg("--version").output().is_err() {
        ubtrfs_sim::skip("not compared: no btrfs-progs");
        return;
    }
    let ours = Link::new("btrfs");
    for group in [
        "device",
        "filesystem",
        "inspect-internal",
        "property",
        "rescue",
        "subvolume",
    ] {
        let meaning = |program: &Path, name: &str| {
            let words = [group, name, "--help"];
            Meaning::of(group, &Command::new(program).args(words).output().unwrap())
        };
        let mut names = vec![];
        for letter in 'a'..='z' {
            names.push(letter.to_string());
        }
        while let Some(name) = names.pop() {
            let theirs = meaning(Path::new("btrfs"), &name);
            assert_eq!(meaning(&ours.path(), &name), theirs, "{group} {name}");
            match theirs {
                Meaning::Unknown => {}
                Meaning::One(whole) => {
                    assert_eq!(meaning(&ours.path(), &whole), Meaning::One(whole));
                }
                Meaning::Ambiguous(_) => {
                    names.extend(('a'..='z').chain(['-']).map(|next| format!("{name}{next}")));
                }
            }
        }
        // Names that only our program has.
        let all = Command::new(env!("CARGO_BIN_EXE_ubtrfs"))
            .args([group, "--help"])
            .output();
        let all = text(&all.unwrap().stdout);
        let listed = all.lines().skip_while(|line| *line != "Commands:").skip(1);
        let listed = listed.take_while(|line| !line.is_empty());
        for name in listed.filter_map(|line| line.split_whitespace().next()) {
            let theirs = meaning(Path::new("btrfs"), name);
            assert_eq!(meaning(&ours.path(), name), theirs, "{group} {name}");
        }
    }
}

/// Lines for which btrfs-progs prints the list of all commands on standard output, and we print nothing
/// there.
const SAYS_MORE: &[&str] = &["nothing", "ls /", "mount"];

#[test]
fn command_lines_end_as_those_of_btrfs_progs() {
    let ours = Link::new("btrfs");
    for (line, code, has_output) in LINES {
        let output = ours.run(line);
        assert_eq!(output.status.code(), Some(*code), "{line}: {output:?}");
        let has_output = *has_output && !SAYS_MORE.contains(line);
        assert_eq!(!output.stdout.is_empty(), has_output, "{line}: {output:?}");
        let failed = *code != 0 && !has_output;
        assert_eq!(!output.stderr.is_empty(), failed, "{line}: {output:?}");
    }
    if Command::new("btrfs").arg("--version").output().is_err() {
        ubtrfs_sim::skip("not compared: no btrfs-progs");
        return;
    }
    for (line, code, has_output) in LINES {
        let output = Command::new("btrfs")
            .args(line.split_whitespace())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(*code), "btrfs-progs: {line}");
        assert_eq!(
            !output.stdout.is_empty(),
            *has_output,
            "btrfs-progs: {line}"
        );
    }
}

#[test]
fn version_is_one_that_scripts_know() {
    let shown = text(&Link::new("btrfs").run("--version").stdout);
    let (first, rest) = shown.split_once('\n').unwrap();
    let version = first.strip_prefix("btrfs-progs v").unwrap();
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    assert!(version.split('.').all(is_number), "{first}");
    assert!(rest.starts_with("ubtrfs v"), "{rest}");
    let shown = text(&Link::new("mkfs.btrfs").run("-V").stdout);
    assert!(
        shown.starts_with("mkfs.btrfs, part of btrfs-progs v"),
        "{shown}"
    );
}

#[test]
fn names_mean_commands_of_btrfs_progs_only() {
    let ours = Link::new("btrfs");
    let said = |line: &str| text(&ours.run(line).stderr);
    assert!(said("sc x").starts_with("btrfs scrub: unknown token 'x'\n"));
    assert_eq!(
        said("bal x"),
        "ERROR: 'balance' is not supported by ubtrfs\n"
    );
    assert_eq!(
        said("fi def /"),
        "ERROR: 'filesystem defragment' is not supported by ubtrfs\n"
    );
    assert!(said("filesystem stats /").starts_with("btrfs filesystem: unknown token 'stats'\n"));
    assert!(said("subvolume diff a b").starts_with("btrfs subvolume: unknown token 'diff'\n"));
    assert!(said("fi trim /").starts_with("btrfs filesystem: unknown token 'trim'\n"));
    assert_eq!(
        said("fi balance start /"),
        "ERROR: 'filesystem balance' is not supported by ubtrfs\n"
    );
    assert!(said("cp a b").starts_with("btrfs: unknown token 'cp'\n"));
    let ambiguous =
        "btrfs: ambiguous token 'q'\n\nDid you mean one of these ?\n\tqgroup\n\tquota\n";
    assert_eq!(said("q"), ambiguous);
    for (line, own) in [
        ("help", "  mount "),
        ("help --full", "  export "),
        ("filesystem --help", "  stats  "),
        ("subvolume --help", "  diff  "),
    ] {
        let help = text(&ours.run(line).stdout);
        assert!(!help.contains(own), "{line}: {help}");
    }
    let (_scratch, image) = empty_volume();
    let shown = Command::new(ours.path())
        .args(["i", "dump-su"])
        .arg(&image)
        .output()
        .unwrap();
    assert!(shown.status.success(), "{shown:?}");
    assert!(text(&shown.stdout).starts_with("superblock: bytenr=65536, device="));
}
