//! The folder of temporary files, for all combinations of names, images and folders that refuse.

use super::*;

/// Returns a folder in memory, if the machine has one.
fn memory_folder() -> Option<&'static Path> {
    let folder = Path::new("/dev/shm");
    is_in_memory(folder).is_ok_and(|is| is).then_some(folder)
}

fn chosen(scratch_dir: &ScratchDir) -> PathBuf {
    scratch_dir.create().unwrap().1
}

fn unnamed(folders: &[&Path]) -> ScratchDir {
    ScratchDir {
        folders: folders.iter().map(|folder| folder.to_path_buf()).collect(),
        is_named: false,
    }
}

/// Creates a folder on a disk, with an image in it.
fn image() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let image = folder.path().join("image");
    fs::write(&image, b"").unwrap();
    (folder, image)
}

// SCRATCH-1
#[test]
fn tmpdir_precedes_the_folder_of_the_image() {
    let (folder, image) = image();
    let other = tempfile::tempdir().unwrap();
    let variable = Some(other.path().as_os_str().to_owned());
    assert_eq!(
        chosen(&ScratchDir::choose(variable, [&image])),
        other.path()
    );
    for unset in [None, Some(OsString::new())] {
        assert_eq!(chosen(&ScratchDir::choose(unset, [&image])), folder.path());
    }
}

// SCRATCH-1
#[test]
fn named_folder_may_be_in_memory() {
    if let Some(folder) = memory_folder() {
        assert_eq!(chosen(&ScratchDir::named(folder)), folder);
        let variable = Some(folder.as_os_str().to_owned());
        let none: [&Path; 0] = [];
        assert_eq!(chosen(&ScratchDir::choose(variable, none)), folder);
    }
}

// SCRATCH-1, SCRATCH-3
#[test]
fn named_folder_that_fails_is_not_replaced() {
    let error = io::Error::from(ScratchDir::named("/there/is/none").create().unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let message = error.to_string();
    assert!(
        message.starts_with("temporary file in /there/is/none: No such"),
        "{message}"
    );
}

// SCRATCH-2
#[test]
fn folders_are_of_the_images_and_then_of_the_system() {
    let (folder, image) = image();
    let system = SYSTEM_FOLDERS.map(Path::new);
    let folders = |devices: &[&Path]| ScratchDir::choose(None, devices).folders.to_vec();
    // Neither a character device nor a path without a file is an image.
    assert_eq!(
        folders(&[Path::new("/dev/null"), Path::new("gone")]),
        system
    );
    let expected = [folder.path(), system[0], system[1]];
    assert_eq!(folders(&[&image, &image]), expected);
    assert_eq!(
        folder_of_image(Path::new("Cargo.toml")),
        Some(PathBuf::from("."))
    );
}

// SCRATCH-2
#[test]
fn folder_that_cannot_be_written_is_passed_over() {
    let (folder, _image) = image();
    let proc = Path::new("/proc");
    assert_eq!(chosen(&unnamed(&[proc, folder.path()])), folder.path());
}

// SCRATCH-2, SCRATCH-3
#[test]
fn folder_in_memory_is_passed_over_unless_it_is_named() {
    let (folder, _image) = image();
    let Some(memory) = memory_folder() else {
        return;
    };
    assert_eq!(chosen(&unnamed(&[memory, folder.path()])), folder.path());
    let none = Path::new("/there/is/none");
    let error = io::Error::from(unnamed(&[none, memory]).create().unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(
        error.to_string(),
        "no folder for temporary files, set TMPDIR: /there/is/none: No such file or directory \
         (os error 2); /dev/shm is in memory"
    );
}
