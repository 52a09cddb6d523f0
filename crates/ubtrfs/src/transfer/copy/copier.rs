//! The copier: walks a source once, and creates each file at the destination.

use std::collections::HashMap;
use std::fmt;

use ubtrfs_device::progress::{Progress, Watch};
use ubtrfs_fs::FileKind;

use super::attributes::Attributes;
use super::destination::Destination;
use super::error::{CopyError, CopyProblem};
use super::options::{CopyOptions, Reflink, Sparse};
use super::source::{CopyStep, Source};
use crate::escaped::Escaped;
use crate::transfer::file_data::{Damage, READ_BYTES};

/// After this number of reads without a single valid byte the rest of a file is skipped. A crafted extent may claim to
/// be longer than any device.
const MAX_LOST_READS: usize = 64;
/// The size of the blocks that become holes if they are zeros.
const HOLE_BYTES: usize = 4096;

/// The start directory of a copy.
#[derive(Debug)]
pub(crate) struct Top<D> {
    pub(crate) dir: D,
    /// The path for messages.
    pub(crate) shown: Vec<u8>,
}

/// A directory that is being filled.
#[derive(Debug)]
struct Level<D> {
    dir: D,
    name: Vec<u8>,
    /// The attributes to set when it is complete; `None` for a directory that is not a copy.
    attributes: Option<Attributes>,
}

/// A copy of a file with several names.
#[derive(Debug)]
struct Linked<L> {
    first: L,
    /// The number of names that the walk has not reached yet.
    remaining: u32,
}

/// A copier of files from a source to a destination. It remembers files with several names across calls.
pub(crate) struct Copier<'a, S: Source, D: Destination> {
    source: &'a S,
    destination: D,
    watch: Watch<'a>,
    options: CopyOptions,
    links: HashMap<S::Id, Linked<D::Link>>,
    buffer: Vec<u8>,
    /// The path of the start directory, for messages.
    top: Vec<u8>,
}

impl<S: Source, D: Destination> fmt::Debug for Copier<'_, S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copier = f.debug_struct("Copier");
        copier
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<'a, S: Source, D: Destination> Copier<'a, S, D> {
    /// Creates a copier that reports to `progress`.
    pub(crate) fn new(
        source: &'a S,
        destination: D,
        options: CopyOptions,
        progress: &'a mut dyn Progress,
    ) -> Copier<'a, S, D> {
        Copier {
            source,
            destination,
            watch: Watch::new(progress),
            options,
            links: HashMap::new(),
            buffer: vec![0; READ_BYTES],
            top: Vec::new(),
        }
    }

    /// Copies `file` into `top` as `name`, with all its contents. `shown` is its path for messages.
    ///
    /// # Errors
    ///
    /// Further copies would fail for the same reason ([`CopyError::is_final`]). Files that were already copied are
    /// kept.
    pub(crate) fn copy_as(
        &mut self,
        file: &S::File,
        top: Top<D::Dir>,
        name: &[u8],
        shown: &[u8],
    ) -> Result<(), CopyError> {
        self.top = top.shown;
        let mut levels = vec![Level {
            dir: top.dir,
            name: Vec::new(),
            attributes: None,
        }];
        match self.entry(&levels, name, file, shown) {
            Ok(Some(level)) => {
                levels.push(level);
                self.fill(file, levels, shown)
            }
            Ok(None) => Ok(()),
            Err(error) => self.report(shown, self.located(error, &levels, name)),
        }
    }

    /// Copies the data of `file` into an open file, which is truncated first if possible. `shown` is the path of `file`
    /// for messages.
    ///
    /// # Errors
    ///
    /// See [`Copier::copy_as`].
    pub(crate) fn copy_into(
        &mut self,
        file: &S::File,
        made: &D::File,
        shown: &[u8],
    ) -> Result<(), CopyError> {
        let attributes = self.source.attributes(file, false);
        let copied = attributes.and_then(|attributes| {
            self.data(file, attributes.size, made, shown)?;
            self.destination.set_size(made, attributes.size)
        });
        copied.or_else(|error| self.report(shown, error))
    }

    /// Copies the contents of the directory `dir` into `top`, and the directory's own attributes. `shown` is its path
    /// for messages.
    ///
    /// # Errors
    ///
    /// See [`Copier::copy_as`].
    pub(crate) fn copy_contents(
        &mut self,
        dir: &S::File,
        top: Top<D::Dir>,
        shown: &[u8],
    ) -> Result<(), CopyError> {
        self.top = top.shown;
        match self.source.attributes(dir, self.options.preserve) {
            Ok(attributes) => {
                let level = Level {
                    dir: top.dir,
                    name: Vec::new(),
                    attributes: Some(attributes),
                };
                self.fill(dir, vec![level], shown)
            }
            Err(error) => self.report(shown, error),
        }
    }

    /// Adds the path to an error that ends the command. `name` is an entry of the last of `levels`.
    fn located(&self, error: CopyError, levels: &[Level<D::Dir>], name: &[u8]) -> CopyError {
        if !error.is_final() || matches!(error, CopyError::At { .. } | CopyError::Cancelled(_)) {
            return error;
        }
        let below = path_of(levels);
        let mut path = self.top.clone();
        for name in [&*below, name] {
            if !name.is_empty() && !path.is_empty() && !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        CopyError::At {
            path: Escaped(&path).to_string(),
            source: Box::new(error),
        }
    }

    fn report(&mut self, path: &[u8], error: CopyError) -> Result<(), CopyError> {
        // COPY-2
        if error.is_final() {
            return Err(error);
        }
        let problem = CopyProblem::NotCopied(error);
        Ok(self.watch.problem(&problem.at(path))?)
    }

    /// Copies everything below the directory `dir` into the last of `levels`. The first level is the start of the copy,
    /// and each one contains the next.
    fn fill(
        &mut self,
        dir: &S::File,
        mut levels: Vec<Level<D::Dir>>,
        shown: &[u8],
    ) -> Result<(), CopyError> {
        let source = self.source;
        let mut walk = match source.walk(dir, shown) {
            Ok(walk) => walk,
            Err(error) => return self.report(shown, error),
        };
        while let Some(step) = walk.next() {
            match step {
                CopyStep::Entry { name, file } => {
                    let copied = self.entry(&levels, &name, &file, walk.path());
                    let entered = copied.and_then(|level| {
                        if level.is_some() {
                            walk.enter()?;
                        }
                        Ok(level)
                    });
                    match entered {
                        Ok(level) => levels.extend(level),
                        Err(error) => {
                            let error = self.located(error, &levels, &name);
                            self.report(walk.path(), error)?;
                        }
                    }
                }
                // COPY-3
                CopyStep::Leave => {
                    if let Some(level) = levels.pop()
                        && let Some(attributes) = &level.attributes
                    {
                        let problems = self.destination.keep_directory(&level.dir, attributes);
                        let kept = self.kept(problems, walk.path());
                        kept.map_err(|error| self.located(error, &levels, &level.name))?;
                    }
                }
                CopyStep::Failed(error) => self.report(walk.path(), error)?,
            }
        }
        Ok(())
    }

    /// Copies one entry into the last of `levels`. A directory is created and returned, to be filled.
    fn entry(
        &mut self,
        levels: &[Level<D::Dir>],
        name: &[u8],
        file: &S::File,
        shown: &[u8],
    ) -> Result<Option<Level<D::Dir>>, CopyError> {
        let (Some(top), Some(parent)) = (levels.first(), levels.last()) else {
            return Ok(None);
        };
        let attributes = self.source.attributes(file, self.options.preserve)?;
        self.watch.begin(shown)?;
        if attributes.kind == FileKind::Directory {
            let (dir, made) = self.destination.directory(&parent.dir, name, &attributes)?;
            // An existing directory keeps its own attributes, unless they are preserved from the source.
            let keeps = made || self.options.preserve;
            return Ok(Some(Level {
                dir,
                name: name.to_vec(),
                attributes: keeps.then_some(attributes),
            }));
        }
        let has_links = self.options.preserve && attributes.nlink > 1;
        if has_links && self.link(&top.dir, &parent.dir, name, file)? {
            return Ok(None);
        }
        let made = self.one(&parent.dir, name, file, &attributes, shown)?;
        if has_links {
            let linked = Linked {
                first: self.destination.link_to(path_of(levels), name, &made),
                remaining: attributes.nlink - 1,
            };
            self.links.insert(self.source.id(file), linked);
        }
        Ok(None)
    }

    /// Adds a name to an existing copy. Returns false if the file was not copied yet.
    fn link(
        &mut self,
        top: &D::Dir,
        parent: &D::Dir,
        name: &[u8],
        file: &S::File,
    ) -> Result<bool, CopyError> {
        let id = self.source.id(file);
        let Some(linked) = self.links.get_mut(&id) else {
            return Ok(false);
        };
        self.destination.link(top, &linked.first, parent, name)?;
        linked.remaining -= 1;
        if linked.remaining == 0 {
            self.links.remove(&id);
        }
        Ok(true)
    }

    /// Copies a file other than a directory.
    fn one(
        &mut self,
        parent: &D::Dir,
        name: &[u8],
        file: &S::File,
        attributes: &Attributes,
        shown: &[u8],
    ) -> Result<D::File, CopyError> {
        let mut copied = Ok(());
        let made = match attributes.kind {
            FileKind::Regular => {
                let of = self.source.in_volume(file);
                let made = self.destination.file(parent, name, attributes, of)?;
                // A failed copy has the size of the written part.
                copied = self
                    .data(file, attributes.size, &made, shown)
                    .and_then(|()| self.destination.set_size(&made, attributes.size));
                if copied.as_ref().is_err_and(CopyError::is_final) {
                    return copied.map(|()| made);
                }
                made
            }
            FileKind::Symlink => {
                let target = self.source.link_target(file)?;
                self.destination.symlink(parent, name, &target)?
            }
            _ => self.destination.node(parent, name, attributes)?,
        };
        let problems = self.destination.keep(&made, attributes);
        self.kept(problems, shown)?;
        copied.map(|()| made)
    }

    /// Reports attributes that a copy could not preserve.
    fn kept(&mut self, problems: Vec<CopyError>, shown: &[u8]) -> Result<(), CopyError> {
        for problem in problems {
            if problem.is_final() {
                return Err(problem);
            }
            let problem = CopyProblem::NotKept(problem);
            self.watch.problem(&problem.at(shown))?;
        }
        Ok(())
    }

    /// Writes the data ranges of a file; the rest stays holes. If no sector can be read, nothing is written, since a
    /// file of zeros with the same length would look like data.
    fn data(
        &mut self,
        file: &S::File,
        size: u64,
        made: &D::File,
        shown: &[u8],
    ) -> Result<(), CopyError> {
        if self.shared(file, size, made)? {
            return Ok(());
        }
        let source = self.source;
        let mut data = source.open(file, size)?;
        let mut damage: Vec<Damage> = Vec::new();
        let mut any_read = false;
        let mut lost_reads = 0;
        // With `Sparse::Never` the whole file is one range, and holes are written as zeros.
        let mut whole = Some(0..size);
        loop {
            let part = match self.options.sparse {
                Sparse::Never => whole.take(),
                _ => data.next_range()?,
            };
            let Some(part) = part else {
                return match damage.into_iter().next() {
                    Some(first) => Err(CopyError::NothingRead(first.error)),
                    None => Ok(()),
                };
            };
            let mut at = part.start;
            while at < part.end {
                let len = (part.end - at).min(READ_BYTES as u64) as usize;
                let read = data.read(at, &mut self.buffer[..len], &mut damage)?;
                if read {
                    self.write(made, at, len)?;
                    any_read = true;
                    lost_reads = 0;
                } else {
                    lost_reads += 1;
                }
                // Damage is reported only after some data was read. Before that the file may turn out to be unreadable,
                // which is one problem, not thousands.
                if any_read {
                    for damage in damage.drain(..) {
                        let problem = CopyProblem::Damaged(damage);
                        self.watch.problem(&problem.at(shown))?;
                    }
                }
                self.watch.advance(len as u64)?;
                at += len as u64;
                if lost_reads >= MAX_LOST_READS {
                    return Err(match damage.into_iter().next() {
                        Some(first) => CopyError::NothingRead(first.error),
                        None => CopyError::GaveUp(at),
                    });
                }
            }
        }
    }

    fn shared(&mut self, file: &S::File, size: u64, made: &D::File) -> Result<bool, CopyError> {
        if self.options.reflink == Reflink::Never || size == 0 {
            return Ok(size == 0);
        }
        let shared = match self.source.in_volume(file) {
            Some(of) if self.options.sparse == Sparse::Auto => self.destination.share(made, of)?,
            _ => false,
        };
        match self.options.reflink {
            Reflink::Always if !shared => Err(CopyError::CannotShare),
            _ => Ok(shared),
        }
    }

    /// Writes the first bytes of the buffer.
    fn write(&mut self, made: &D::File, at: u64, len: usize) -> Result<(), CopyError> {
        let bytes = &self.buffer[..len];
        if self.options.sparse != Sparse::Always {
            return self.destination.write(made, at, bytes);
        }
        let is_zeros = |part: &&[u8]| part.iter().all(|&byte| byte == 0);
        let mut start = 0;
        while start < len {
            let mut rest = bytes[start..].chunks(HOLE_BYTES);
            let zeros: usize = rest.by_ref().take_while(is_zeros).map(<[u8]>::len).sum();
            start += zeros;
            let rest = bytes[start..].chunks(HOLE_BYTES);
            let data: usize = rest
                .take_while(|part| !is_zeros(part))
                .map(<[u8]>::len)
                .sum();
            if data > 0 {
                let part = &bytes[start..start + data];
                self.destination.write(made, at + start as u64, part)?;
            }
            start += data;
        }
        Ok(())
    }
}

/// Returns the path of the last of `levels`, relative to the first.
fn path_of<D>(levels: &[Level<D>]) -> Vec<u8> {
    let names: Vec<&[u8]> = levels.iter().skip(1).map(|level| &*level.name).collect();
    names.join(&b'/')
}
