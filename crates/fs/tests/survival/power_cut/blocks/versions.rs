//! Versions of a file's contents, each with the number of the operation that wrote it.

use std::sync::Arc;

const BLOCK_BYTES: usize = 4096;
/// The bytes that a device writes atomically.
const SECTOR_BYTES: usize = 512;

/// The contents of one file during a script, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Versions(Vec<Version>);

#[derive(Clone, Debug)]
struct Version {
    ops: usize,
    /// The operation, for messages.
    made_by: String,
    contents: Arc<Vec<u8>>,
}

/// How a file's data is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overwrite {
    /// In blocks of 4 KiB, which are old or new as a whole.
    Copied,
    /// In sectors of 512 bytes. A truncation zeroes the rest of the last block before the size is durable.
    InPlace,
}

impl Versions {
    /// Creates the versions of an empty file.
    pub(super) fn new() -> Versions {
        let mut versions = Versions(Vec::new());
        versions.push(0, "create", Vec::new());
        versions
    }

    pub(super) fn latest(&self) -> &Arc<Vec<u8>> {
        &self.0.last().unwrap().contents
    }

    pub(super) fn push(&mut self, ops: usize, made_by: impl Into<String>, contents: Vec<u8>) {
        self.0.push(Version {
            ops,
            made_by: made_by.into(),
            contents: Arc::new(contents),
        });
    }

    /// Returns the versions that a volume may show if the operations up to `at_least` are durable and those
    /// up to `at_most` had begun.
    fn between(&self, at_least: usize, at_most: usize) -> &[Version] {
        let begun_by = |most| self.0.partition_point(|version| version.ops <= most);
        let first = begun_by(at_least) - 1;
        &self.0[first..begun_by(at_most).max(first + 1)]
    }

    /// Checks the size, and that each block is from a version that extends to the block's end. Blocks may be
    /// from different versions.
    pub(super) fn judge(
        &self,
        found: &[u8],
        overwrite: Overwrite,
        (at_least, at_most): (usize, usize),
    ) -> Result<(), String> {
        let legal = self.between(at_least, at_most);
        let sizes = || legal.iter().map(|version| version.contents.len());
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        let fault = |what: String| {
            let mut text = format!("{what} of {} bytes, after", found.len());
            for version in legal {
                let Version { ops, made_by, .. } = version;
                let size = version.contents.len();
                text.push_str(&format!("\n  {ops}: {made_by} -> {size} bytes"));
            }
            Err(text)
        };
        if !(least..=most).contains(&found.len()) {
            return fault("the size".to_owned());
        }
        let block_bytes = match overwrite {
            Overwrite::Copied => BLOCK_BYTES,
            Overwrite::InPlace => SECTOR_BYTES,
        };
        for (number, block) in found.chunks(block_bytes).enumerate() {
            let start = number * block_bytes;
            if !legal.iter().any(|of| of.holds(block, start, overwrite)) {
                let shown = if block.iter().all(|byte| *byte == 0) {
                    "zeros".to_owned()
                } else {
                    format!("{:?}...", &block[..block.len().min(16)])
                };
                return fault(format!("the block at {start} ({shown})"));
            }
        }
        Ok(())
    }
}

impl Version {
    fn holds(&self, block: &[u8], start: usize, overwrite: Overwrite) -> bool {
        let contents = &self.contents;
        let end = contents.len().min(start + block.len());
        let held = &contents[start.min(end)..end];
        let in_last_block = start / BLOCK_BYTES * BLOCK_BYTES < contents.len();
        let is_padded = overwrite == Overwrite::InPlace && in_last_block;
        (held.len() == block.len() || is_padded)
            && block.starts_with(held)
            && block[held.len()..].iter().all(|byte| *byte == 0)
    }
}

/// Returns `contents` with `bytes` at `offset`. A gap in between reads as zeros.
pub(super) fn with_bytes(contents: &[u8], offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut contents = grown(contents, offset + bytes.len());
    contents[offset..offset + bytes.len()].copy_from_slice(bytes);
    contents
}

/// Returns `contents`, extended to at least `size` bytes.
pub(super) fn grown(contents: &[u8], size: usize) -> Vec<u8> {
    let mut contents = contents.to_vec();
    contents.resize(contents.len().max(size), 0);
    contents
}
