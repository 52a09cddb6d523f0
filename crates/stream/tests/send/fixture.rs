//! A volume with snapshots made by the kernel, and a second volume that receives their streams.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ubtrfs_format::ids::RootId;
use ubtrfs_fs::{OpenOptions, Snapshot, Volume};
use ubtrfs_sim::kernel::{KernelMount, KernelVolume, MkfsSpec};
use ubtrfs_sim::manifest::{Difference, Field, Manifest, diff_without};
use ubtrfs_stream::{
    Command as StreamCommand, CommandLines, SendOptions, Sender, StreamReader, StreamVersion,
    StreamWriter,
};

/// Fields that a stream does not contain, and sizes of directories, which include nested subvolumes.
const NOT_SENT: [Field; 3] = [Field::Ctime, Field::Btime, Field::DirSize];

pub(crate) const V1: SendOptions = SendOptions {
    version: StreamVersion::V1,
    no_data: false,
    compressed: false,
};
pub(crate) const V2: SendOptions = SendOptions {
    version: StreamVersion::V2,
    ..V1
};
pub(crate) const V2_COMPRESSED: SendOptions = SendOptions {
    compressed: true,
    ..V2
};

/// The source volume, mounted by the kernel. `live` is edited, and its snapshots are next to it.
pub(crate) struct Source {
    volume: KernelVolume,
    mount: Option<KernelMount>,
    options: String,
    shown: Vec<(String, Manifest)>,
}

impl Source {
    pub(crate) fn new(options: &str) -> Source {
        Source::of(&MkfsSpec::new(), options)
    }

    pub(crate) fn of(spec: &MkfsSpec, options: &str) -> Source {
        let volume = KernelVolume::make(spec).unwrap();
        let options = format!("noatime{options}");
        let mount = volume.mount(&options).unwrap();
        btrfs(&["subvolume", "create"], &[&mount.path().join("live")]);
        Source {
            volume,
            mount: Some(mount),
            options,
            shown: Vec::new(),
        }
    }

    fn top(&self) -> &Path {
        self.mount.as_ref().expect("mounted").path()
    }

    pub(crate) fn live(&self) -> PathBuf {
        self.top().join("live")
    }

    /// Remounts the volume, so that numbers of deleted inodes are reused.
    pub(crate) fn remount(&mut self) {
        self.mount.take().unwrap().unmount().unwrap();
        self.mount = Some(self.volume.mount(&self.options).unwrap());
    }

    pub(crate) fn snapshot(&mut self, name: &str) {
        self.snapshot_of("live", name);
    }

    pub(crate) fn snapshot_of(&mut self, of: &str, name: &str) {
        let to = self.top().join(name);
        let from = self.top().join(of);
        btrfs(&["subvolume", "snapshot", "-r"], &[&from, &to]);
        let manifest = without_empty_subvolume_dirs(Manifest::of_dir(&to).unwrap());
        self.shown.push((name.to_owned(), manifest));
    }

    /// Writes the kernel's stream of a snapshot to a file.
    pub(crate) fn sent_by_kernel(
        &self,
        name: &str,
        parent: Option<&str>,
        options: &[&str],
    ) -> PathBuf {
        let stream = self.volume.dir().join(format!("{name}.theirs"));
        let parent = parent.map(|parent| self.top().join(parent));
        let mut command = Command::new("btrfs");
        command.args(["send", "-q"]).args(options);
        if let Some(parent) = &parent {
            command.arg("-p").arg(parent);
        }
        command.arg("-f").args([&stream, &self.top().join(name)]);
        let output = command.output().unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {messages}");
        stream
    }

    /// Unmounts the volume.
    pub(crate) fn close(mut self) -> KernelVolume {
        self.mount.take().unwrap().unmount().unwrap();
        self.volume
    }

    /// Unmounts the volume and opens it with the engine.
    pub(crate) fn open(mut self) -> Sending {
        self.mount.take().unwrap().unmount().unwrap();
        let volume = Volume::open(self.volume.devices(), &OpenOptions::new()).unwrap();
        Sending {
            opened: volume,
            files: self.volume,
            shown: self.shown,
        }
    }
}

/// Removes the directories of nested subvolumes, which streams omit.
fn without_empty_subvolume_dirs(mut manifest: Manifest) -> Manifest {
    manifest
        .entries
        .retain(|entry| !entry.is_empty_subvolume_dir());
    manifest
}

pub(crate) struct Sending {
    opened: Arc<Volume>,
    files: KernelVolume,
    shown: Vec<(String, Manifest)>,
}

impl Sending {
    pub(crate) fn snapshot(&self, name: &str) -> Snapshot {
        let top = self.opened.root_dir(RootId::FS_TREE).unwrap();
        let dir = self.opened.resolve(top, name.as_bytes()).unwrap();
        Snapshot::open(&self.opened, dir.root).unwrap()
    }

    /// Writes the stream of a snapshot to a file.
    pub(crate) fn send(
        &self,
        name: &str,
        parent: Option<&str>,
        clones: &[&str],
        options: SendOptions,
    ) -> PathBuf {
        let path = self.files.dir().join(format!("{name}.stream"));
        let snapshot = self.snapshot(name);
        let parent = parent.map(|parent| self.snapshot(parent));
        let clones: Vec<Snapshot> = clones.iter().map(|name| self.snapshot(name)).collect();
        let mut sender = Sender::new(&snapshot, options);
        if let Some(parent) = &parent {
            sender = sender.parent(parent);
        }
        for clone in &clones {
            sender = sender.clone_source(clone);
        }
        let file = BufWriter::new(File::create(&path).unwrap());
        let mut writer = StreamWriter::new(file, options.version).unwrap();
        sender.send(&mut writer).unwrap();
        writer.write(&StreamCommand::End).unwrap();
        writer.into_inner().into_inner().unwrap();
        path
    }

    pub(crate) fn manifest(&self, name: &str) -> &Manifest {
        let found = self.shown.iter().find(|(shown, _)| shown == name);
        &found.unwrap().1
    }
}

/// The destination volume.
pub(crate) struct Target {
    mount: KernelMount,
    _volume: KernelVolume,
}

impl Target {
    pub(crate) fn new(options: &str) -> Target {
        Target::with(&MkfsSpec::new(), options)
    }

    pub(crate) fn of(spec: &MkfsSpec) -> Target {
        Target::with(spec, "")
    }

    fn with(spec: &MkfsSpec, options: &str) -> Target {
        let volume = KernelVolume::make(spec).unwrap();
        let mount = volume.mount(&format!("noatime{options}")).unwrap();
        Target {
            mount,
            _volume: volume,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mount.path().join(name)
    }

    /// Compares the result of `btrfs receive` with the sent snapshot. Returns a description of the differences as an
    /// error.
    pub(crate) fn try_receive(
        &self,
        sending: &Sending,
        name: &str,
        stream: &Path,
    ) -> Result<(), String> {
        self.take(stream)?;
        let differences = differences(sending.manifest(name), &self.shown(name));
        if differences.is_empty() {
            Ok(())
        } else {
            Err(format!("{differences:#?}\n{}", dumped(stream)))
        }
    }

    /// Receives a stream with `btrfs receive`.
    pub(crate) fn take(&self, stream: &Path) -> Result<(), String> {
        let output = Command::new("btrfs")
            .args(["receive", "-f"])
            .args([stream, self.mount.path()])
            .output()
            .unwrap();
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() || messages.contains("ERROR") {
            Err(format!("{messages}\n{}", dumped(stream)))
        } else {
            Ok(())
        }
    }

    /// Lists a subvolume on the kernel mount.
    pub(crate) fn shown(&self, name: &str) -> Manifest {
        Manifest::of_dir(&self.path(name)).unwrap()
    }

    pub(crate) fn receive(&self, sending: &Sending, name: &str, stream: &Path) {
        if let Err(wrong) = self.try_receive(sending, name, stream) {
            panic!("{name}: {wrong}");
        }
    }

    pub(crate) fn delete(&self, name: &str) {
        btrfs(&["subvolume", "delete"], &[&self.path(name)]);
    }
}

pub(crate) fn differences(left: &Manifest, right: &Manifest) -> Vec<String> {
    differences_without(left, right, &[])
}

/// Returns the differences in the fields that streams contain, except for `without`.
pub(crate) fn differences_without(
    left: &Manifest,
    right: &Manifest,
    without: &[Field],
) -> Vec<String> {
    let without = [&NOT_SENT, without].concat();
    let differences = diff_without(&left.canonical(), &right.canonical(), &without);
    differences.iter().map(Difference::to_string).collect()
}

/// Lists the commands of a stream in short form.
pub(crate) fn dumped(stream: &Path) -> String {
    let bytes = fs::read(stream).unwrap();
    let mut reader = StreamReader::open(&*bytes).unwrap();
    let mut dump = CommandLines::new(|seconds| seconds);
    let mut lines = Vec::new();
    while lines.len() < 400 {
        match reader.next_command() {
            Ok(Some(command)) => lines.extend(dump.line_of(&command)),
            Ok(None) => break,
            Err(error) => {
                lines.push(format!("{error:?}"));
                break;
            }
        }
    }
    lines.join("\n")
}

/// Returns the number of commands of a kind in a stream.
pub(crate) fn count(stream: &Path, is_counted: impl Fn(&StreamCommand<'_>) -> bool) -> usize {
    let bytes = fs::read(stream).unwrap();
    let mut reader = StreamReader::open(&*bytes).unwrap();
    let mut count = 0;
    while let Some(command) = reader.next_command().unwrap() {
        count += usize::from(is_counted(&command));
    }
    count
}

pub(crate) fn btrfs(args: &[&str], paths: &[&Path]) {
    let output = Command::new("btrfs")
        .args(args)
        .args(paths)
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?} {paths:?}: {messages}");
}
