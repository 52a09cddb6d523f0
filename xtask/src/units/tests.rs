//! Messages of cargo, the order of programs, and the summary of a run.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::{ENDING_WITH_US, Job, LONGEST, Program, Ran, Runner, parse, skips_in, sort, summary};

const SIGTERM: i32 = 15;

/// Returns a shortened message of cargo.
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
        skips: BTreeMap::new(),
    }
}

/// Returns a job for a program of this system, run from the top.
fn system(executable: &str) -> Job {
    Job::Program(Program {
        executable: executable.into(),
        ..program("a")
    })
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

/// A folder that is removed even if its test fails.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        // A program sees its folder with links resolved.
        let above = fs::canonicalize(std::env::temp_dir()).unwrap();
        let path = above.join(format!("units-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// UNITS-1, UNITS-2
#[test]
fn all_programs_run_in_their_folders_though_some_fail() {
    let all = Folder::new();
    let root = &all.0;
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
    let mut runner = Runner::new(root, &args, &show);
    runner.logs = root.join("logs");
    let gone = root.join("logs/a-gone.log");
    fs::create_dir_all(gone.parent().unwrap()).unwrap();
    fs::write(&gone, "").unwrap();
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
    let begins = "units: a/first begins: logs/a-first.log\n".to_owned();
    assert!(shown.contains(&begins), "{shown:?}");
    assert!(root.join("logs/a-first.log").exists());
    assert!(!gone.exists());
}

/// UNITS-3
#[test]
fn programs_have_mount_namespaces_of_their_own() {
    let shown = Mutex::new(Vec::new());
    let show = |text: &[u8]| shown.lock().unwrap().extend(text);
    let runner = Runner::new(Path::new("/"), &["/proc/self/ns/mnt"], &show);
    let ours = fs::read_link("/proc/self/ns/mnt").unwrap();
    let output = runner.command(&system("/bin/readlink")).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let is_apart = said.trim_end() != ours.to_str().unwrap();
    let plain = Command::new("unshare").args(["--mount", "true"]).output();
    let can_be_apart = plain.is_ok_and(|plain| plain.status.success());
    assert_eq!(is_apart, can_be_apart, "{said}");
    let shown = String::from_utf8(shown.into_inner().unwrap()).unwrap();
    let lack = "units: no mount namespaces: ";
    assert_eq!(shown.contains(lack), !can_be_apart, "{shown}");
}

/// UNITS-4
#[test]
fn program_ends_with_the_thread_that_waits_for_it() {
    let args = ["-c", "echo; exec sleep 600"];
    let runner = Runner::new(Path::new("/"), &args, &|_| ());
    if !runner.prefix.starts_with(ENDING_WITH_US) {
        ubtrfs_sim::skip("no setpriv");
        return;
    }
    let mut command = runner.command(&system("/bin/sh"));
    command.stdout(Stdio::piped());
    let waiting = thread::spawn(move || {
        let mut program = command.spawn().unwrap();
        let mut newline = [0];
        let said = program.stdout.as_mut().unwrap().read_exact(&mut newline);
        (program, said)
    });
    let (mut program, said) = waiting.join().unwrap();
    let status = program.wait().unwrap();
    said.unwrap();
    assert_eq!(status.signal(), Some(SIGTERM));
}

/// UNITS-6
#[test]
fn programs_without_root_are_those_of_nobody() {
    let args = ["-c", "id -un; id -Gn; echo $HOME"];
    let scratch = ubtrfs_sim::Scratch::new().unwrap();
    let mut runner = Runner::new(scratch.path(), &args, &|_| ());
    if !ubtrfs_sim::is_root_or_skip() {
        assert!(runner.leave_root().is_err());
        return;
    }
    runner.leave_root().unwrap();
    let output = runner.command(&system("/bin/sh")).output().unwrap();
    let wanted = format!("nobody\nnogroup\n{}\n", std::env::temp_dir().display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), wanted);
}

#[test]
fn summary_names_the_longest_and_all_failures() {
    let mut all = [ran("a", 1, None), ran("b", 9, None)];
    let text = summary(&mut all, Duration::from_secs(9));
    let longest = "units: the longest:\n     9 s  b\n     1 s  a\n";
    assert_eq!(
        text,
        format!("{longest}units: 0 skipped\nunits: all 2 passed, 9 s\n")
    );
    let mut some = [ran("a", 1, Some("exit status: 101")), ran("b", 9, None)];
    let text = summary(&mut some, Duration::from_secs(9));
    let failed = "units: 1 of 2 failed, 9 s:\n  a: exit status: 101\n";
    assert_eq!(text, format!("{longest}units: 0 skipped\n{failed}"));
}

/// UNITS-5
#[test]
fn summary_counts_skips_by_reason() {
    let said = "SKIPPED one: not root\ntest two ... SKIPPED main: part: no /dev/fuse\nok\n\
                SKIPPED three: not root\nSKIPPED\n";
    let mut all = [ran("a", 1, None)];
    all[0].skips = skips_in(said);
    let text = summary(&mut all, Duration::from_secs(1));
    let skipped = "units: 3 skipped:\n     2    a: not root\n     1    a: part: no /dev/fuse\n";
    assert!(text.contains(skipped), "{text}");
}
