//! Small volumes made by the kernel, kept in `tests/images` for machines without btrfs in the kernel.
//!
//! Each has a zstd stream per device (`NAME.0.img.zst`, ...) and the manifest from the kernel (`NAME.manifest`).
//! `scripts/make-test-images` creates them.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use zstd_safe::{CCtx, CParameter, DCtx, InBuffer, OutBuffer};

use crate::error::At;
use crate::manifest::Manifest;
use crate::zeros::is_zero;
use crate::{Error, Result, Scratch};

const BLOCK: usize = 128 << 10;
/// Copies of metadata are tens of MiB apart; a window that spans them stores them only once.
const WINDOW_LOG: u32 = 27;

/// An image, unpacked into files that are deleted on drop.
#[derive(Debug)]
pub struct Image {
    /// The device files, by devid.
    pub devices: Vec<PathBuf>,
    /// The manifest from the kernel.
    pub manifest: Manifest,
    _scratch: Scratch,
}

/// Returns the folder with the images.
pub fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/images")
}

/// A lock that prevents other processes from mounting a kept image.
///
/// The kernel mounts only one volume with the same UUID at a time, and each image has a fixed UUID.
#[derive(Debug)]
pub struct Alone {
    _locked: File,
}

/// Waits for exclusive permission to mount kept images.
pub fn alone() -> Result<Alone> {
    let path = std::env::temp_dir().join("ubtrfs-kept-images.lock");
    let file = File::create(&path).at("create", &path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).at("lock", &path)?;
    Ok(Alone { _locked: file })
}

/// Lists the names of all images, sorted.
pub fn names() -> Result<Vec<String>> {
    let dir = dir();
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).at("list", &dir)? {
        let name = entry.at("list", &dir)?.file_name();
        if let Some(name) = name
            .to_str()
            .and_then(|name| name.strip_suffix(".manifest"))
        {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

pub fn image(name: &str) -> Result<Image> {
    let dir = dir();
    let list = dir.join(format!("{name}.manifest"));
    if !list.exists() {
        let name = name.to_owned();
        return Err(Error::NoImage { name, dir });
    }
    let manifest = Manifest::parse(&fs::read_to_string(&list).at("read", &list)?)?;
    let scratch = Scratch::new()?;
    let mut devices = Vec::new();
    loop {
        let packed = dir.join(packed_name(name, devices.len()));
        if !packed.exists() {
            break;
        }
        let device = scratch.path().join(format!("{name}.{}.img", devices.len()));
        unpack(&packed, &device)?;
        devices.push(device);
    }
    Ok(Image {
        devices,
        manifest,
        _scratch: scratch,
    })
}

/// Packs `devices` and `manifest` as the image `name`; returns its size in bytes.
pub fn keep(name: &str, devices: &[PathBuf], manifest: &Manifest) -> Result<u64> {
    let dir = dir();
    fs::create_dir_all(&dir).at("create", &dir)?;
    let list = dir.join(format!("{name}.manifest"));
    fs::write(&list, manifest.to_string()).at("write", &list)?;
    let mut bytes = 0;
    for (number, device) in devices.iter().enumerate() {
        let packed = dir.join(packed_name(name, number));
        pack(device, &packed)?;
        bytes += fs::metadata(&packed).at("stat", &packed)?.len();
    }
    Ok(bytes)
}

fn packed_name(name: &str, number: usize) -> String {
    format!("{name}.{number}.img.zst")
}

fn bad(path: &Path) -> impl Fn(usize) -> Error + use<> {
    let path = path.to_path_buf();
    move |code| Error::BadImage {
        path: path.clone(),
        reason: zstd_safe::get_error_name(code),
    }
}

fn pack(device: &Path, packed: &Path) -> Result<()> {
    let bad = bad(packed);
    let data = fs::read(device).at("read", device)?;
    let mut context = CCtx::create();
    for parameter in [
        CParameter::CompressionLevel(19),
        CParameter::WindowLog(WINDOW_LOG),
        CParameter::EnableLongDistanceMatching(true),
        CParameter::ChecksumFlag(true),
    ] {
        context.set_parameter(parameter).map_err(&bad)?;
    }
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
    context.compress2(&mut out, &data).map_err(&bad)?;
    fs::write(packed, out).at("write", packed)
}

/// Unpacks an image. Blocks of zeros become holes.
pub fn unpack(packed: &Path, device: &Path) -> Result<()> {
    let bad = bad(packed);
    let mut from = BufReader::new(File::open(packed).at("open", packed)?);
    let to = File::create_new(device).at("create", device)?;
    let mut context = DCtx::create();
    let (mut read, mut written) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut offset = 0;
    let mut left = 1;
    loop {
        let got = from.read(&mut read).at("read", packed)?;
        if got == 0 {
            break;
        }
        let mut input = InBuffer::around(&read[..got]);
        while input.pos() < got {
            let mut output = OutBuffer::around(written.as_mut_slice());
            left = context
                .decompress_stream(&mut output, &mut input)
                .map_err(&bad)?;
            offset = put(&to, device, offset, output.as_slice())?;
        }
        // Flushes the decoder's remaining output for this input.
        loop {
            let mut output = OutBuffer::around(written.as_mut_slice());
            left = if left == 0 {
                break;
            } else {
                let input = &mut InBuffer::around(&[]);
                context
                    .decompress_stream(&mut output, input)
                    .map_err(&bad)?
            };
            if output.pos() == 0 {
                break;
            }
            offset = put(&to, device, offset, output.as_slice())?;
        }
    }
    if left != 0 {
        return Err(Error::BadImage {
            path: packed.to_path_buf(),
            reason: "cut short",
        });
    }
    to.set_len(offset).at("set length", device)
}

/// Writes data at an offset, and returns the offset after it.
fn put(to: &File, device: &Path, offset: u64, data: &[u8]) -> Result<u64> {
    let mut at = offset;
    for block in data.chunks(4096) {
        if !is_zero(block) {
            to.write_all_at(block, at).at("write", device)?;
        }
        at += block.len() as u64;
    }
    Ok(at)
}
