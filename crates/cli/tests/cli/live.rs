//! A mount with recent writes reports the same internal structure as its image does later, and live
//! statistics count the operations.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::mounted::Mounted;
use crate::process::{fail, location, succeed};

const BYTES: usize = 300_000;

/// Returns the output of a command about the mount at a path, or about the volume.
fn say(words: &[&str], place: OsString) -> String {
    let words = words.iter().map(OsString::from).chain([place]);
    String::from_utf8(succeed(words)).unwrap()
}

fn sync(mounted: &Mounted) {
    assert_eq!(say(&["filesystem", "sync"], mounted.dir.clone().into()), "");
}

/// Returns the addresses of the extents of the files in the top level.
fn extents(volume: &Path) -> Vec<u64> {
    let dumped = say(&["inspect-internal", "dump-tree", "-t", "5"], volume.into());
    let lines = dumped
        .lines()
        .filter_map(|line| line.split_once("data disk byte "));
    let mut found: Vec<u64> = lines
        .map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn users(options: &[&str], logical: u64, volume: OsString) -> Vec<String> {
    let logical = logical.to_string();
    let words = [
        &["inspect-internal", "logical-resolve"],
        options,
        &[&logical],
    ]
    .concat();
    let said = say(&words, volume);
    let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn addresses_of_what_was_just_written_lead_to_its_files() {
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    let at = |name: &str| mounted.dir.join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("dir/file"), vec![b'1'; BYTES]).unwrap();
    fs::hard_link(at("dir/file"), at("link")).unwrap();
    sync(&mounted);
    let [first] = extents(&mounted.dir)[..] else {
        panic!("not one extent");
    };
    let dir = || mounted.dir.clone().into_os_string();
    let shown = |name: &str| at(name).into_os_string().into_string().unwrap();
    assert_eq!(users(&[], first, dir()), [shown("dir/file"), shown("link")]);
    assert_eq!(users(&["-P"], first, dir()), ["inode 258 offset 0 root 5"]);

    // Only a snapshot uses the old contents now.
    let words = ["subvolume", "snapshot", "-q"].map(OsString::from);
    succeed(words.into_iter().chain([dir(), at("old").into()]));
    fs::write(at("link"), vec![b'2'; BYTES]).unwrap();
    fs::write(at("other"), vec![b'3'; BYTES]).unwrap();
    sync(&mounted);
    let old = [shown("old/dir/file"), shown("old/link")];
    assert_eq!(users(&[], first, dir()), old);
    let found = extents(&mounted.dir);
    assert_eq!(found.len(), 2);
    let on_mount: Vec<_> = found
        .iter()
        .chain([&first])
        .map(|&logical| {
            let json = ["--format", "json"];
            (users(&[], logical, dir()), users(&json, logical, dir()))
        })
        .collect();
    fs::remove_file(at("other")).unwrap();
    sync(&mounted);
    let gone = found
        .iter()
        .filter(|logical| !extents(&mounted.dir).contains(logical));
    let gone: Vec<String> = gone.map(u64::to_string).collect();
    assert_eq!(gone.len(), 1);
    let resolve = ["inspect-internal", "logical-resolve", &gone[0]].map(OsString::from);
    fail(
        resolve.into_iter().chain([dir()]),
        "no file data at logical",
    );
    mounted.unmount();

    for ((paths, json), logical) in on_mount.iter().zip(found.iter().chain([&first])) {
        if gone.contains(&logical.to_string()) {
            continue;
        }
        let image = || mounted.image.clone().into_os_string();
        let inside = location(&mounted.image, "").into_string().unwrap();
        let plain = users(&[], *logical, image());
        let plain: Vec<String> = plain
            .iter()
            .map(|path| path.replace(&inside, &shown("")))
            .collect();
        assert_eq!(*paths, plain);
        assert_eq!(*json, users(&["--format", "json"], *logical, image()));
    }
}

#[test]
fn figures_of_trees_are_those_of_the_last_commit() {
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    let stats = |volume: &Path| -> Value {
        let words = [
            "--format",
            "json",
            "inspect-internal",
            "tree-stats",
            "-t",
            "5",
        ];
        serde_json::from_str(&say(&words, volume.into())).unwrap()
    };
    let empty = stats(&mounted.dir);
    for number in 0..3000 {
        fs::write(mounted.dir.join(format!("file{number}")), b"inline").unwrap();
    }
    sync(&mounted);
    let full = stats(&mounted.dir);
    let nodes = |stats: &Value| -> Vec<u64> {
        let levels = stats["tree-stats"][0]["nodes"].as_array().unwrap();
        levels.iter().map(|nodes| nodes.as_u64().unwrap()).collect()
    };
    assert_eq!(nodes(&empty), [1]);
    assert!(nodes(&full)[0] > 20 && nodes(&full)[1] == 1, "{full}");
    let inline = full["tree-stats"][0]["inline_bytes"].as_u64();
    assert_eq!(inline, Some(3000 * 6));
    let text = say(
        &["inspect-internal", "tree-stats", "-b"],
        mounted.dir.clone().into(),
    );
    let total: u64 = nodes(&full).iter().sum();
    assert!(
        text.contains(&format!("\tTotal nodes: {total}\n")),
        "{text}"
    );
    mounted.unmount();
    assert_eq!(stats(&mounted.image), full);
}

#[test]
fn figures_of_a_mount_count_what_is_written() {
    let Some(mounted) = Mounted::new("rw", |_| {}) else {
        return;
    };
    let stats = |format: &str| {
        say(
            &["--format", format, "filesystem", "stats"],
            mounted.dir.clone().into(),
        )
    };
    let before: Value = serde_json::from_str(&stats("json")).unwrap();
    fs::write(mounted.dir.join("file"), vec![b'x'; BYTES]).unwrap();
    fs::rename(mounted.dir.join("file"), mounted.dir.join("name")).unwrap();
    assert!(fs::remove_dir(mounted.dir.join("name")).is_err());
    sync(&mounted);
    let after: Value = serde_json::from_str(&stats("json")).unwrap();
    let grown = |path: &str| {
        let number = |stats: &Value| stats.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        number(&after) - number(&before)
    };
    let all = "/filesystem-stats";
    assert_eq!(
        grown(&format!("{all}/bytes_written")),
        BYTES as u64,
        "{after}"
    );
    assert_eq!(grown(&format!("{all}/requests/rename/count")), 1, "{after}");
    assert!(
        grown(&format!("{all}/requests/write/count")) >= 1,
        "{after}"
    );
    assert!(grown(&format!("{all}/writer/commits")) >= 1, "{after}");
    // The figure includes every copy of the data.
    assert!(
        grown(&format!("{all}/writer/data_bytes")) >= BYTES as u64,
        "{after}"
    );
    assert!(grown(&format!("{all}/writer/node_bytes")) > 0, "{after}");
    let phases = after
        .pointer(&format!("{all}/writer/phases"))
        .unwrap()
        .as_object()
        .unwrap();
    assert!(
        phases.len() == 6 && phases.values().any(|spent| spent.as_u64() > Some(0)),
        "{after}"
    );

    let text = stats("text");
    for begin in [
        "Bytes written:    293.0 KiB",
        "rename ",
        "Commits:  ",
        "  converge ",
        "Data to devices:",
    ] {
        assert!(
            text.lines().any(|line| line.starts_with(begin)),
            "{begin}: {text}"
        );
    }
    let prometheus = stats("prometheus");
    let sample = |start: &str| {
        let found = prometheus.lines().find(|line| line.starts_with(start));
        let value = found.and_then(|line| line.rsplit(' ').next());
        value
            .and_then(|value| value.parse::<f64>().ok())
            .unwrap_or_else(|| panic!("{start}: {prometheus}"))
    };
    assert_eq!(sample("ubtrfs_written_bytes_total{"), BYTES as f64);
    assert!(sample("ubtrfs_commits_total{") >= 1.0);
    assert!(sample("ubtrfs_data_bytes_total{") >= BYTES as f64);
    sample("ubtrfs_commit_phase_seconds_total{");
    let named: Vec<&str> = prometheus
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .collect();
    for line in prometheus.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once('{').unwrap();
        let is_declared = |named: &&str| {
            let (declared, kind) = named.split_once(' ').unwrap();
            let of_histogram = ["_bucket", "_sum", "_count"]
                .iter()
                .any(|end| name.strip_suffix(end) == Some(declared));
            name == declared || kind == "histogram" && of_histogram
        };
        assert!(named.iter().any(is_declared), "{line}");
        let (labels, value) = rest.rsplit_once("} ").unwrap();
        assert!(
            labels.starts_with("mountpoint=\"") && value.parse::<f64>().is_ok(),
            "{line}"
        );
    }
}
