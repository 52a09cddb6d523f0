//! `mkfs --rootdir` and `import` of archives that exceed limits of the format, and of archives by unusual
//! writers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ubtrfs_sim::Scratch;

use crate::process::{assert_success, mkfs, refusal};

const NAME_AT: usize = 0;
const UID: std::ops::Range<usize> = 108..116;
const SUM: std::ops::Range<usize> = 148..156;

/// Creates a ustar header without a checksum.
fn header(name: &[u8], kind: u8, size: u64) -> [u8; 512] {
    let mut header = tar::Header::new_ustar();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(tar::EntryType::new(kind));
    let mut bytes = *header.as_bytes();
    bytes[NAME_AT..name.len()].copy_from_slice(name);
    bytes
}

/// Inserts the checksum: the sum of the bytes, each converted by `value`.
fn summed(mut header: [u8; 512], value: fn(u8) -> i64) -> [u8; 512] {
    header[SUM].fill(b' ');
    let sum: i64 = header.iter().map(|&byte| value(byte)).sum();
    header[SUM][..7].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

fn member(header: [u8; 512], data: &[u8]) -> Vec<u8> {
    let mut bytes = summed(header, i64::from).to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// Creates a pax header of some records for the next member.
fn pax(records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while rest + len.to_string().len() != len {
            len = rest + len.to_string().len();
        }
        data.extend_from_slice(format!("{len} ").as_bytes());
        data.extend_from_slice(&[*key, b"=", value, b"\n"].concat());
    }
    member(header(b"pax", b'x', data.len() as u64), &data)
}

fn archive(scratch: &Scratch, members: &[Vec<u8>]) -> PathBuf {
    let path = scratch.path().join("v.tar");
    fs::write(&path, [members.concat(), vec![0; 1024]].concat()).unwrap();
    path
}

fn ubtrfs(args: &[&std::ffi::OsStr]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ubtrfs"));
    command.args(args).output().unwrap()
}

/// Imports an archive into an empty volume, and returns the image and the command's output.
fn imported(scratch: &Scratch, archive: &Path) -> (PathBuf, Output) {
    let image = scratch.path().join("into.img");
    let _ = fs::remove_file(&image);
    let made = mkfs().args(["-q", "-b", "128M"]).arg(&image).output();
    assert_success("mkfs", &made.unwrap());
    let mut place = image.clone().into_os_string();
    place.push(":/");
    let args = [
        "import".as_ref(),
        "--tar".as_ref(),
        archive.as_os_str(),
        place.as_os_str(),
    ];
    let output = ubtrfs(&args);
    (image, output)
}

fn cat(image: &Path, path: &str) -> Vec<u8> {
    let mut place = image.as_os_str().to_owned();
    place.push(":/");
    place.push(path);
    let output = ubtrfs(&["cat".as_ref(), place.as_os_str()]);
    assert_success("cat", &output);
    output.stdout
}

#[test]
fn files_beyond_a_limit_of_the_format_are_refused() {
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("v.img");
    let long_name = [&b"SCHILY.xattr.user."[..], &[b'n'; 251]].concat();
    let file = || member(header(b"f", b'0', 0), b"");
    let link = || member(header(b"l", b'2', 0), b"");
    let mut device = header(b"d", b'3', 0);
    device[329..336].copy_from_slice(b"0010000");
    let sparse = |size: &'static [u8]| {
        let map = pax(&[
            (b"GNU.sparse.major", b"1"),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.realsize", size),
        ]);
        let mut data = b"0\n".to_vec();
        data.resize(512, 0);
        [map, member(header(b"f", b'0', 512), &data)].concat()
    };
    for (members, message) in [
        (
            vec![pax(&[(&long_name, b"value")]), file()],
            "f has an attribute with a name of 256 bytes (max 255)",
        ),
        (
            vec![pax(&[(b"SCHILY.xattr.user.a\0b", b"value")]), file()],
            "f has an attribute with a name that is empty or holds a NUL",
        ),
        (
            vec![pax(&[(b"SCHILY.xattr.user.a", &[7; 17_000])]), file()],
            "f has an attribute of 17006 bytes (max 16228)",
        ),
        (
            vec![pax(&[(b"linkpath", &[b't'; 4096])]), link()],
            "l has a link target of 4096 bytes (max 4095)",
        ),
        (vec![link()], "l has an empty link target"),
        (
            vec![pax(&[(b"linkpath", b"a\0b")]), link()],
            "l has a link target that holds a NUL",
        ),
        (
            vec![sparse(b"18446744073709551615")],
            "f has a size of 18446744073709551615 bytes",
        ),
        (
            vec![sparse(b"9223372036854775808")],
            "f has a size of 9223372036854775808 bytes",
        ),
        (
            vec![member(device, b"")],
            "d has a device with the numbers 4096, 0",
        ),
    ] {
        let archive = archive(&scratch, &members);
        let said = refusal(["--rootdir".as_ref(), archive.as_os_str(), image.as_os_str()]);
        assert!(said.contains(message), "{said:?} lacks {message:?}");
        assert!(!image.exists(), "{message}");
        let (_, output) = imported(&scratch, &archive);
        assert_eq!(output.status.code(), Some(1), "{message}");
    }
    // The longest permitted attribute name and link target are accepted by both commands.
    let name = [&b"SCHILY.xattr.user."[..], &[b'n'; 250]].concat();
    let members = [
        pax(&[(&name, b"value")]),
        file(),
        pax(&[(b"linkpath", &[b't'; 4095])]),
        link(),
    ];
    let archive = archive(&scratch, &members);
    let output = mkfs()
        .args(["-q", "--rootdir"])
        .args([&archive, &image])
        .output();
    assert_success("the longest", &output.unwrap());
    let checked = ubtrfs(&["check".as_ref(), image.as_os_str()]);
    assert_success("check", &checked);
    let (_, output) = imported(&scratch, &archive);
    assert_success("import", &output);
}

#[test]
fn headers_of_odd_writers_are_read() {
    let scratch = Scratch::new().unwrap();
    let image = scratch.path().join("v.img");
    let mut blank = header(b"blank", b'0', 3);
    blank[UID].fill(0);
    let mut spaces = header(b"spaces", b'0', 3);
    spaces[UID].fill(b' ');
    let signed = summed(header(b"caf\xe9", b'0', 3), |byte| {
        i64::from(byte.cast_signed())
    });
    let mut signed = signed.to_vec();
    signed.extend_from_slice(b"two");
    signed.resize(1024, 0);
    let members = [
        member(blank, b"one"),
        signed,
        member(spaces, b"six"),
        // The last of two headers applies to the member; nothing of the first is used.
        pax(&[(b"path", b"first"), (b"uid", b"77")]),
        pax(&[(b"path", b"last")]),
        member(header(b"short", b'0', 5), b"three"),
    ];
    let archive = archive(&scratch, &members);
    let output = mkfs()
        .args(["-q", "--rootdir"])
        .args([&archive, &image])
        .output();
    assert_success("mkfs", &output.unwrap());
    let (import, output) = imported(&scratch, &archive);
    assert_success("import", &output);
    for image in [&image, &import] {
        assert_eq!(cat(image, "blank"), b"one");
        assert_eq!(cat(image, "spaces"), b"six");
        assert_eq!(cat(image, "last"), b"three");
        let listed = ubtrfs(&["ls".as_ref(), "-ln".as_ref(), image.as_os_str()]);
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(!listed.contains("77") && listed.contains("caf"), "{listed}");
    }
}

#[test]
fn import_of_a_damaged_archive_says_how_far_it_came() {
    let scratch = Scratch::new().unwrap();
    let members = [
        member(header(b"a", b'0', 3), b"one"),
        member(header(b"b", b'0', 3), b"two"),
        vec![b'z'; 512],
    ];
    let archive = archive(&scratch, &members);
    let (image, output) = imported(&scratch, &archive);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    let message = "no header at byte 2048; the 2 members before it are unpacked";
    assert!(said.contains(message), "{said}");
    assert_eq!(cat(&image, "b"), b"two");
}
