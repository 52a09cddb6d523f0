//! Memory limits from cgroup files of both versions.

use super::*;

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn mounted(top: &Path, root: &str, unified: bool) -> Hierarchy {
    Hierarchy {
        root: root.to_owned(),
        at: top.to_owned(),
        unified,
    }
}

#[test]
fn the_tightest_group_counts() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    write(&top.join("new/a/memory.max"), "1000000\n");
    write(&top.join("new/a/b/memory.max"), "max\n");
    write(&top.join("new/a/c/memory.high"), "700000\n");
    write(&top.join("old/d/memory.limit_in_bytes"), "500000\n");
    let all = [
        mounted(&top.join("new"), "/", true),
        mounted(&top.join("old"), "/", false),
    ];
    let limit = |groups| limit_of(&all, groups);
    assert_eq!(limit("0::/a/b\n"), Some(1_000_000));
    assert_eq!(limit("0::/a/c\n"), Some(700_000));
    assert_eq!(limit("0::/\n"), None);
    assert_eq!(limit("3:cpu,memory:/d\n0::/a\n"), Some(500_000));
    assert_eq!(limit("3:cpu:/d\n"), None);
    assert_eq!(limit("nothing known"), None);
}

#[test]
fn a_group_of_the_host_is_the_mounted_top_of_a_container() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    write(&top.join("memory.max"), "3000\n");
    write(&top.join("mine/memory.max"), "2000\n");
    let limit = |root, groups| limit_of(&[mounted(top, root, true)], groups);
    assert_eq!(limit("/", "0::/of/the/host\n"), Some(3000));
    assert_eq!(limit("/box", "0::/box/mine\n"), Some(2000));
    assert_eq!(limit("/box", "0::/elsewhere\n"), Some(3000));
}

#[test]
fn hierarchies_are_found_where_they_are_mounted() {
    let mounts = "\
25 30 0:23 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
26 25 0:24 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
27 25 0:25 /box /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory
28 25 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
nothing known
";
    let found = hierarchies(mounts);
    let wanted = [
        mounted(Path::new("/sys/fs/cgroup/unified"), "/", true),
        mounted(Path::new("/sys/fs/cgroup/memory"), "/box", false),
    ];
    assert_eq!(found, wanted);
}

#[test]
fn no_process_may_take_more_than_the_machine_has() {
    assert!(memory_limit() > 0);
    assert!(memory_limit() <= memory_of_machine());
}
