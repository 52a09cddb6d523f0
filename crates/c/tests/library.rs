//! The shared library from the view of C programs: its symbols, and the examples compiled against it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

use ubtrfs::Volume;
use ubtrfs_check::{CheckOptions, check};
use ubtrfs_sim::Scratch;
use ubtrfs_sim::kernel;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Runs a command, which must succeed, and returns its output.
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the archive that cargo built next to this test.
fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let entries = fs::read_dir(deps).unwrap().map(Result::unwrap);
    let archives = entries.filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("libubtrfs_c") && name.ends_with(".a")
    });
    let age =
        |entry: &fs::DirEntry| -> SystemTime { entry.metadata().unwrap().modified().unwrap() };
    archives.max_by_key(age).expect("an archive").path()
}

/// Links the library once for all tests of this process, and returns its folder.
fn library() -> PathBuf {
    static LINKED: Mutex<bool> = Mutex::new(false);
    // A folder that another user cannot replace.
    let user = fs::metadata("/proc/self").unwrap().uid();
    let name = format!("libubtrfs-{user}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut is_linked = LINKED.lock().unwrap();
    if !*is_linked {
        let script = Path::new(HERE).join("../../scripts/c-library");
        run(Command::new(script).arg(archive()).arg(&folder));
        *is_linked = true;
    }
    folder
}

fn functions_of_header() -> BTreeSet<String> {
    let header = fs::read_to_string(Path::new(HERE).join("include/ubtrfs.h")).unwrap();
    let code = header.split_once("extern \"C\" {").unwrap().1;
    let code = code.split_once("#ifdef").unwrap().0;
    let is_comment = |line: &&str| line.starts_with("/*") || line.starts_with(" *");
    let lines = code.lines().filter(|line| !is_comment(line));
    let text = lines.collect::<Vec<_>>().join("\n");
    let calls = text.match_indices('(').map(|(at, _)| &text[..at]);
    let names = calls.map(|before| before.rsplit([' ', '*', '\n']).next().unwrap());
    // Drops pointers to arrays, which have a bracket of their own.
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Returns the functions that the version script lists, with their nodes, and the nodes themselves.
fn versions() -> (BTreeMap<String, String>, BTreeSet<String>) {
    let map = fs::read_to_string(Path::new(HERE).join("ubtrfs.map")).unwrap();
    let (mut functions, mut nodes) = (BTreeMap::new(), BTreeSet::new());
    let mut node = String::new();
    for line in map.lines().map(str::trim) {
        if let Some(name) = line.strip_suffix(" {") {
            name.clone_into(&mut node);
            nodes.insert(node.clone());
        } else if let Some(function) = line.strip_suffix(';')
            && function.starts_with("ubtrfs_")
        {
            let before = functions.insert(function.to_owned(), node.clone());
            assert_eq!(before, None, "{function} has two nodes");
        }
    }
    (functions, nodes)
}

#[test]
fn each_function_of_the_header_has_a_version() {
    let (versions, _) = versions();
    let listed: BTreeSet<String> = versions.into_keys().collect();
    assert_eq!(listed, functions_of_header(), "see ubtrfs.map");
}

#[test]
fn shared_library_exports_the_functions_of_the_version_script_alone() {
    let library = library().join("lib/libubtrfs.so");
    let listed = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library));
    let (versions, nodes) = versions();
    let symbols = listed.lines().filter_map(|line| line.rsplit(' ').next());
    let exported: BTreeMap<String, String> = symbols
        .filter(|symbol| !nodes.contains(*symbol))
        .map(|symbol| {
            let (name, node) = symbol.split_once("@@").unwrap_or((symbol, "none"));
            (name.to_owned(), node.to_owned())
        })
        .collect();
    assert_eq!(exported, versions);
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("soname: [libubtrfs.so.0]"), "{dynamic}");
}

/// Returns the compiler flags from pkg-config.
fn flags(library: &Path, wanted: &[&str]) -> String {
    run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", library.join("lib/pkgconfig"))
        .args(wanted)
        .arg("ubtrfs"))
}

/// Compiles a program against the library, as documented.
fn compile(library: &Path, source: &Path, program: &Path) {
    let flags = flags(library, &["--cflags", "--libs"]);
    compile_with(&flags, source, program);
}

fn compile_with(flags: &str, source: &Path, program: &Path) {
    let strict = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-g",
    ];
    let mut cc = Command::new("cc");
    cc.args(strict).arg("-o").arg(program).arg(source);
    run(cc.args(flags.split_whitespace()));
}

#[test]
fn programs_of_the_page_make_volumes() {
    let library = library();
    let scratch = Scratch::new().unwrap();
    let page = Path::new(HERE).join("../../docs/embedding.md");
    let page = fs::read_to_string(page).unwrap();
    let programs: Vec<&str> = page.split("```c\n").skip(1).collect();
    assert_eq!(programs.len(), 3);
    for code in programs {
        let source = scratch.path().join("page.c");
        fs::write(&source, code.split_once("```").unwrap().0).unwrap();
        let program = scratch.path().join("page");
        compile(&library, &source, &program);
        run(Command::new(&program)
            .current_dir(scratch.path())
            .env("LD_LIBRARY_PATH", library.join("lib")));
    }
    let pair = Volume::builder().scan([scratch.path()]).read_only(true);
    let pair = pair.open(&[scratch.path().join("two.img")]).unwrap();
    assert_eq!((pair.label(), pair.devices().len()), ("pair".into(), 2));
    let volume = Volume::open_read_only(scratch.path().join("archive.img")).unwrap();
    assert_eq!(volume.root().read("/version-1/log").unwrap(), b"a line\n");
}

#[test]
fn program_has_the_static_library_within() {
    let library = library();
    let scratch = Scratch::new().unwrap();
    let program = scratch.path().join("archive");
    let flags = flags(&library, &["--static", "--cflags", "--libs"]);
    // The linker prefers the shared library, which is in the same folder.
    let flags = flags.replace("-lubtrfs", "-l:libubtrfs.a");
    let source = Path::new(HERE).join("examples/archive.c");
    compile_with(&flags, &source, &program);
    let dynamic = run(Command::new("readelf").arg("-d").arg(&program));
    assert!(!dynamic.contains("libubtrfs"), "{dynamic}");
    let file = scratch.path().join("file");
    fs::write(&file, "content").unwrap();
    let image = scratch.path().join("archive.img");
    let printed = run(Command::new(&program).args([&image, &file]));
    assert_eq!(printed, "/version-1/file: 7 bytes\n");
}

const VALGRIND: &[&str] = &[
    "valgrind",
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,possible",
    "--show-leak-kinds=definite,possible",
];

fn suppressions() -> String {
    format!("--suppressions={HERE}/tests/valgrind.supp")
}

#[test]
fn example_in_c_sends_what_a_folder_became() {
    let library = library();
    let scratch = Scratch::new().unwrap();
    let program = scratch.path().join("backup");
    let source = Path::new(HERE).join("examples/backup.c");
    compile(&library, &source, &program);
    let place = |name: &str| scratch.path().join(name);
    let (image, folder) = (place("backup.img"), place("folder"));
    let backup = |through: &[&str], stream: &str| {
        let mut words: Vec<&OsStr> = through.iter().map(OsStr::new).collect();
        words.push(program.as_os_str());
        run(Command::new(words[0])
            .args(&words[1..])
            .args([&image, &folder, &place(stream)])
            .env("LD_LIBRARY_PATH", library.join("lib")))
    };
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("one"), vec![b'x'; 200_000]).unwrap();
    fs::write(folder.join("two"), b"second").unwrap();
    let printed = backup(&[], "first");
    assert_eq!(printed, "/version-1: at most 1024 MiB, committed\n");
    fs::write(folder.join("three"), b"third").unwrap();
    let suppressions = suppressions();
    let printed = backup(&[VALGRIND, &[&suppressions]].concat(), "second");
    assert!(printed.contains("\nadded: files/three\n"), "{printed}");
    assert!(printed.contains("\n/version-2: at most"), "{printed}");

    let backup = Volume::in_memory(1 << 30).unwrap();
    for stream in ["first", "second"] {
        let stream = fs::File::open(place(stream)).unwrap();
        let options = ubtrfs::ReceiveOptions::new();
        backup
            .root()
            .receive("/", stream, &options, &mut ())
            .unwrap();
    }
    let second = backup.root().subvolume("/version-2").unwrap();
    assert_eq!(second.read("/files/one").unwrap(), vec![b'x'; 200_000]);
    assert_eq!(second.read("/files/three").unwrap(), b"third");
    assert!(!backup.root().exists("/version-1/files/three").unwrap());
    let number = second.xattr("/", "user.number").unwrap().unwrap();
    assert_eq!(number, 2u32.to_ne_bytes());
    let origin = second.xattr("/", "user.origin").unwrap().unwrap();
    assert_eq!(origin, folder.as_os_str().as_encoded_bytes());
}

#[test]
fn example_in_c_keeps_each_version() {
    let library = library();
    let scratch = Scratch::new().unwrap();
    let program = scratch.path().join("archive");
    compile(
        &library,
        &Path::new(HERE).join("examples/archive.c"),
        &program,
    );
    let image = scratch.path().join("archive.img");
    let (one, two) = (scratch.path().join("one"), scratch.path().join("two"));
    let archive = |through: &[&str], files: &[&Path]| {
        let words: Vec<&OsStr> = through
            .iter()
            .map(OsStr::new)
            .chain([program.as_os_str()])
            .collect();
        run(Command::new(words[0])
            .args(&words[1..])
            .arg(&image)
            .args(files)
            .env("LD_LIBRARY_PATH", library.join("lib")))
    };
    fs::write(&one, vec![b'x'; 200_000]).unwrap();
    fs::write(&two, b"").unwrap();
    let listed = archive(&[], &[&one, &two]);
    assert_eq!(
        listed,
        "/version-1/one: 200000 bytes\n/version-1/two: 0 bytes\n"
    );
    fs::write(&one, b"changed").unwrap();
    let suppressions = suppressions();
    let valgrind = [VALGRIND, &[&suppressions]].concat();
    let listed = archive(&valgrind, &[&one]);
    assert_eq!(listed, "/version-2/one: 7 bytes\n/version-2/two: 0 bytes\n");

    let volume = Volume::open_read_only(&image).unwrap();
    assert_eq!(volume.label(), "archive");
    assert_eq!(
        volume.root().read("/version-1/one").unwrap(),
        vec![b'x'; 200_000]
    );
    assert_eq!(volume.root().read("/version-2/one").unwrap(), b"changed");
    let origin = volume.root().xattr("/current/one", "user.origin").unwrap();
    assert_eq!(origin.unwrap(), one.as_os_str().as_encoded_bytes());
    drop(volume);
    let report = check(
        std::slice::from_ref(&image),
        &CheckOptions::default(),
        &mut (),
    )
    .unwrap();
    assert!(report.is_spotless(), "{:?}", report.issues);
    if kernel::or_skip("the volume of a C program") {
        run(Command::new("btrfs")
            .args(["check", "--readonly"])
            .arg(&image));
    }
}

#[test]
fn callbacks_hear_of_progress_and_end_long_calls() {
    let library = library();
    let scratch = Scratch::new().unwrap();
    let program = scratch.path().join("long_calls");
    let source = Path::new(HERE).join("tests/long_calls.c");
    compile(&library, &source, &program);
    let tree = scratch.path().join("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    fs::write(tree.join("file"), vec![b'x'; 3 << 20]).unwrap();
    let two = fs::File::create_new(scratch.path().join("two.img")).unwrap();
    two.set_len(512 << 20).unwrap();
    run(Command::new(&program)
        .arg(scratch.path())
        .env("LD_LIBRARY_PATH", library.join("lib")));
    let pair = Volume::builder().scan([scratch.path()]).read_only(true);
    let pair = pair.open(&[scratch.path().join("one.img")]).unwrap();
    assert_eq!(
        (pair.label(), pair.devices().len()),
        ("formatted".into(), 2)
    );
    let copied = pair.root().read("/unpacked/tree/file").unwrap();
    assert!(copied == vec![b'x'; 3 << 20]);
}

#[test]
fn ranges_are_shared_and_the_default_subvolume_chosen() {
    let library = library();
    let scratch = Scratch::new().unwrap();
    let program = scratch.path().join("ranges");
    compile(&library, &Path::new(HERE).join("tests/ranges.c"), &program);
    let image = scratch.path().join("volume.img");
    run(Command::new(&program)
        .arg(&image)
        .env("LD_LIBRARY_PATH", library.join("lib")));
    let volume = Volume::open_read_only(&image).unwrap();
    assert_eq!(volume.root().read("/copy").unwrap(), vec![b'x'; 32 << 10]);
}

#[test]
fn handles_outlive_the_volume_and_do_nothing_in_a_fork() {
    let library = library();
    let scratch = Scratch::new().unwrap();
    let program = scratch.path().join("handles");
    let mut flags = flags(&library, &["--cflags", "--libs"]);
    flags.push_str(" -pthread");
    compile_with(&flags, &Path::new(HERE).join("tests/handles.c"), &program);
    let image = scratch.path().join("volume.img");
    run(Command::new(&program)
        .arg(&image)
        .env("LD_LIBRARY_PATH", library.join("lib")));
    let volume = Volume::open_read_only(&image).unwrap();
    for file in ["/file", "/after"] {
        assert_eq!(volume.root().read(file).unwrap(), b"before and after");
    }
    assert_eq!(volume.label(), "");
    drop(volume);
    let images = std::slice::from_ref(&image);
    let report = check(images, &CheckOptions::default(), &mut ()).unwrap();
    assert!(report.is_spotless(), "{:?}", report.issues);
}
