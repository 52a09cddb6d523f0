//! Messages of cargo, the order of programs, and the end of a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::{Job, LOGS, LONGEST, Program, Ran, Runner, parse, sort, summary};

/// A message as cargo writes it, shortened.
fn message(kind: &str, source: &str, is_test: bool, executable: &str) -> String {
    format!(
        r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/crates/a#0.1.0","manifest_path":"/w/crates/a/Cargo.toml","target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"a","src_path":"{source}","edition":"2024","doctest":false,"test":true}},"profile":{{"opt_level":"0","debug_assertions":true,"test":{is_test}}},"features":[],"filenames":["/w/target/debug/deps/a-1"],"executable":{executable},"fresh":true}}"#
    )
}

fn program(source: &str) -> Program {
    Program {
        source: source.to_owned(),
        executable: "/bin/true".into(),
        folder: "/".into(),
    }
}

fn ran(name: &str, seconds: u64, failure: Option<&str>) -> Ran {
    Ran {
        name: name.to_owned(),
        took: Duration::from_secs(seconds),
        failure: failure.map(str::to_owned),
    }
}

#[test]
fn program_of_tests_is_read_with_its_folder() {
    let said = message("test", "/w/crates/a/tests/a.rs", true, r#""/w/a \\\"1""#);
    let found = parse(&said, "/w").unwrap();
    assert_eq!(found.source, "crates/a/tests/a.rs");
    assert_eq!(found.executable, PathBuf::from("/w/a \\\"1"));
    assert_eq!(found.folder, PathBuf::from("/w/crates/a"));
}

#[test]
fn other_messages_name_no_program_of_tests() {
    let command = message("bin", "/w/crates/a/src/main.rs", false, r#""/w/a""#);
    let library = message("lib", "/w/crates/a/src/lib.rs", true, "null");
    let finished = r#"{"reason":"build-finished","success":true}"#;
    for said in [command.as_str(), &library, finished, ""] {
        assert_eq!(parse(said, "/w"), None, "{said}");
    }
}

#[test]
fn longest_programs_begin_first_and_others_keep_their_order() {
    let mut programs = ["b", LONGEST[1], "a", LONGEST[0]].map(program);
    sort(&mut programs);
    let order = programs.each_ref().map(|program| program.source.as_str());
    assert_eq!(order, [LONGEST[0], LONGEST[1], "b", "a"]);
}

#[test]
fn longest_programs_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for source in LONGEST {
        assert!(root.join(source).is_file(), "{source}");
    }
}

/// UNITS-1, UNITS-2
#[test]
fn all_programs_run_in_their_folders_though_some_fail() {
    let root = std::env::temp_dir().join(format!("units-{}", std::process::id()));
    let folder = root.join("package");
    fs::create_dir_all(&folder).unwrap();
    let job = |source: &str, executable: &str| {
        Job::Program(Program {
            source: source.to_owned(),
            executable: executable.into(),
            folder: folder.clone(),
        })
    };
    let jobs = [
        job("a/missing", "/nowhere/to/be/found"),
        job("a/first", "/bin/sh"),
        job("a/second", "/bin/sh"),
    ];
    let args = ["-c", "pwd; echo said >&2; echo $CARGO_MANIFEST_DIR; exit 3"];
    let shown = Mutex::new(Vec::new());
    let show = |text: &[u8]| {
        shown
            .lock()
            .unwrap()
            .push(String::from_utf8_lossy(text).into_owned())
    };
    let runner = Runner::new(&root, &args, &show);
    let ran = runner.run_all(jobs.into()).unwrap();
    let mut failures: Vec<_> = ran
        .into_iter()
        .map(|ran| (ran.name, ran.failure.unwrap_or_default()))
        .collect();
    failures.sort();
    let names = ["a/first", "a/missing", "a/second"];
    assert!(failures.iter().map(|(name, _)| name).eq(names.iter()));
    assert_eq!(failures[0].1, "exit status: 3");
    let place = folder.display();
    let said = format!("{place}\nsaid\n{place}\nunits: a/first: exit status: 3, ");
    let shown = shown.into_inner().unwrap();
    assert!(
        shown.iter().any(|text| text.starts_with(&said)),
        "{shown:?}"
    );
    assert!(root.join(LOGS).join("a-first.log").exists());
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn programs_have_mount_namespaces_of_their_own() {
    let ignore = |_: &[u8]| ();
    let runner = Runner::new(Path::new("/"), &["/proc/self/ns/mnt"], &ignore);
    let job = Job::Program(Program {
        source: "a".to_owned(),
        executable: "/bin/readlink".into(),
        folder: "/".into(),
    });
    let ours = fs::read_link("/proc/self/ns/mnt").unwrap();
    let output = runner.command(&job).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let is_apart = said.trim_end() != ours.to_str().unwrap();
    // UNITS-3
    assert_eq!(is_apart, runner.has_namespaces, "{said}");
}

#[test]
fn summary_names_the_longest_and_all_failures() {
    let mut all = [ran("a", 1, None), ran("b", 9, None)];
    let text = summary(&mut all, Duration::from_secs(9));
    let longest = "units: the longest:\n     9 s  b\n     1 s  a\n";
    assert_eq!(text, format!("{longest}units: all 2 passed, 9 s\n"));
    let mut some = [ran("a", 1, Some("exit status: 101")), ran("b", 9, None)];
    let text = summary(&mut some, Duration::from_secs(9));
    let failed = "units: 1 of 2 failed, 9 s:\n  a: exit status: 101\n";
    assert_eq!(text, format!("{longest}{failed}"));
}
