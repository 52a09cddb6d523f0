//! `ubtrfs inspect-internal dump-super`: the copies of the superblock, as they are.
//!
//! Only the magic is checked: the command is meant for damaged superblocks. For a disk without one, the volumes on its
//! partitions, arrays and LVM volumes are displayed.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use ubtrfs::BlockDevice;
use ubtrfs_assemble::{Disks, OtherDisks};
use ubtrfs_format::superblock::{MAGIC, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};

use crate::presentation::console::Console;
use crate::presentation::json::{self, JsonList};
use crate::presentation::quoting::Escaped;
use crate::print::{Copy, print_superblock, superblock_json};
use crate::volume_access::location::{DeviceOptions, Location, LocationParser};

const RULE: &str = "---------------------------------------------------------";

/// Print the superblock of devices
#[derive(Debug, clap::Args)]
pub(crate) struct DumpSuper {
    /// The devices or images
    #[arg(required = true, value_name = "DEVICE", value_parser = LocationParser::Images)]
    devices: Vec<Location>,
    /// Print the system chunk array and the backup roots as well
    #[arg(short, long)]
    full: bool,
    /// Print all copies
    #[arg(short, long)]
    all: bool,
    /// Print this copy: 0, 1 or 2
    #[arg(short, long = "super", value_name = "COPY", default_value_t = 0)]
    super_: u64,
    /// Print this copy, as --super
    #[arg(
        short = 'i',
        value_name = "COPY",
        hide = true,
        conflicts_with = "super_"
    )]
    index: Option<u64>,
    /// Print what lies at this byte
    #[arg(long, value_name = "OFFSET")]
    bytenr: Option<u64>,
    /// Print a superblock whose magic is wrong
    #[arg(short = 'F', long)]
    force: bool,
}

/// The bytes of a device to display.
enum Place {
    Copy(usize),
    Bytenr(u64),
}

/// A device to read.
struct Source {
    /// The path, or the name of a layer.
    name: PathBuf,
    bytes: Bytes,
}

enum Bytes {
    File(File),
    Layer(Arc<dyn BlockDevice>),
}

impl Source {
    fn open(path: &Path) -> anyhow::Result<Source> {
        let shown = Escaped::of(path).to_string();
        let file = File::open(path).with_context(|| format!("cannot open '{shown}'"))?;
        if file.metadata()?.is_dir() {
            bail!("'{shown}' is a directory, not an image or a device");
        }
        Ok(Source {
            name: path.to_owned(),
            bytes: Bytes::File(file),
        })
    }

    /// Returns whether one of the copies has its magic.
    fn has_superblock(&self) -> bool {
        let mut block = vec![0; SUPERBLOCK_SIZE];
        SUPERBLOCK_OFFSETS.iter().any(|&offset| {
            let len = self.read_up_to(&mut block, offset).unwrap_or(0);
            len == SUPERBLOCK_SIZE
                && Superblock::from_block(&block).is_some_and(|found| found.magic == MAGIC)
        })
    }

    /// Reads bytes, up to the end of the device. Returns their number.
    fn read_up_to(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.bytes {
            Bytes::File(file) => read_up_to(file, buf, offset),
            Bytes::Layer(device) => {
                let rest = device.len_bytes().saturating_sub(offset);
                let len = rest.min(buf.len() as u64) as usize;
                device.read_at(&mut buf[..len], offset)?;
                Ok(len)
            }
        }
    }
}

impl DumpSuper {
    pub(crate) fn run(&self, console: &mut Console) -> anyhow::Result<()> {
        let place = self.place(console)?;
        let mut list = if console.is_json() {
            Some(JsonList::start(&mut console.out, "dump-super")?)
        } else {
            None
        };
        for source in &self.sources()? {
            let shown = Escaped::of(&source.name).to_string();
            if self.all {
                for offset in SUPERBLOCK_OFFSETS {
                    self.dump(console, &mut list, source, offset)?;
                }
                continue;
            }
            let offset = match place {
                Place::Copy(copy) => SUPERBLOCK_OFFSETS[copy],
                Place::Bytenr(offset) => offset,
            };
            // As in btrfs-progs, this is not a failure.
            if !self.dump(console, &mut list, source, offset)? {
                console.warning(format_args!(
                    "'{shown}' ends before the superblock at {offset}"
                ));
            }
        }
        match list {
            Some(list) => Ok(list.end(&mut console.out)?),
            None => Ok(()),
        }
    }

    /// Returns the named devices. For a mount, returns all of its devices.
    fn paths(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for location in &self.devices {
            if location.session().is_none() {
                for image in location.images() {
                    paths.push(image.path()?.to_owned());
                }
                continue;
            }
            let volume = DeviceOptions::default().as_committed().open(location)?;
            let devices = volume.devices();
            paths.extend(devices.into_iter().filter_map(|device| device.path));
        }
        Ok(paths)
    }

    /// Opens the named devices. Volumes on layers of disks are in place of disks without a superblock.
    fn sources(&self) -> anyhow::Result<Vec<Source>> {
        let mut sources = Vec::new();
        let mut disks = Vec::new();
        for path in self.paths()? {
            let source = Source::open(&path)?;
            if self.force || self.bytenr.is_some() || source.has_superblock() {
                sources.push(source);
            } else {
                disks.push((path, source));
            }
        }
        let named: Vec<PathBuf> = disks.iter().map(|(path, _)| path.clone()).collect();
        let layers = Disks {
            named: &named,
            others: OtherDisks::Nearby,
        };
        let mut on_layers = Vec::new();
        if !named.is_empty()
            && let Ok(assembly) = layers.peek()
        {
            for volume in layers.volumes(&assembly) {
                let devices = assembly.devices(&volume).into_iter();
                on_layers.extend(devices.map(|(name, device)| Source {
                    name,
                    bytes: Bytes::Layer(device),
                }));
            }
        }
        if on_layers.is_empty() {
            on_layers.extend(disks.into_iter().map(|(_, source)| source));
        }
        sources.extend(on_layers);
        Ok(sources)
    }

    fn place(&self, console: &mut Console) -> anyhow::Result<Place> {
        if let Some(offset) = self.bytenr {
            return Ok(Place::Bytenr(offset));
        }
        let number = self.index.unwrap_or(self.super_);
        match usize::try_from(number) {
            Ok(copy) if copy < SUPERBLOCK_OFFSETS.len() => Ok(Place::Copy(copy)),
            _ if self.index.is_some() => bail!("there is no copy {number}: the copies are 0, 1, 2"),
            _ => {
                console.warning(format_args!(
                    "deprecated use of -s <bytenr> with {number}, assuming --bytenr"
                ));
                Ok(Place::Bytenr(number))
            }
        }
    }

    /// Prints the superblock at `offset`. Returns false if the device ends before it.
    fn dump(
        &self,
        console: &mut Console,
        list: &mut Option<JsonList>,
        source: &Source,
        offset: u64,
    ) -> anyhow::Result<bool> {
        let device = &source.name;
        let shown = Escaped::of(device).to_string();
        let mut block = vec![0; SUPERBLOCK_SIZE];
        let len = source
            .read_up_to(&mut block, offset)
            .with_context(|| format!("cannot read the superblock on '{shown}' at {offset}"))?;
        if len == 0 {
            return Ok(false);
        }
        if len < SUPERBLOCK_SIZE {
            bail!(
                "'{shown}' ends within the superblock at {offset}: {len}/{SUPERBLOCK_SIZE} bytes"
            );
        }
        let out = &mut console.out;
        if list.is_none() {
            write!(out, "superblock: bytenr={offset}, device=")?;
            out.write_all(device.as_os_str().as_bytes())?;
            writeln!(out, "\n{RULE}")?;
        }
        let superblock = Superblock::from_block(&block).expect("read whole");
        if superblock.magic != MAGIC && !self.force {
            bail!("bad magic on superblock on {shown} at {offset} (use --force to dump it anyway)");
        }
        let copy = Copy {
            superblock,
            full: self.full,
        };
        let result = match list {
            Some(list) => {
                let device = json::text(device.as_os_str().as_bytes());
                let (json, result) = superblock_json(device, offset, &copy);
                list.push(out, &json)?;
                result
            }
            None => {
                let result = print_superblock(out, &copy)?;
                writeln!(out)?;
                result
            }
        };
        if let Err(error) = result {
            console.report(error);
        }
        Ok(true)
    }
}

fn read_up_to(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < buf.len() {
        let at = offset.saturating_add(len as u64);
        match file.read_at(&mut buf[len..], at) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
