//! A device that calls the test before each request, for actions in the middle of an operation, or for a panic there.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use ubtrfs_device::{BlockDevice, DiscardGeometry};

/// The kind of a request to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Read,
    Write,
    Flush,
    Discard,
}

type Hook = Arc<dyn Fn(Request) + Send + Sync>;

pub struct HookedDevice {
    inner: Arc<dyn BlockDevice>,
    hook: Mutex<Option<Hook>>,
}

impl HookedDevice {
    pub fn new(inner: Arc<dyn BlockDevice>) -> HookedDevice {
        HookedDevice {
            inner,
            hook: Mutex::new(None),
        }
    }

    /// Installs `hook`, which is called on the requesting thread. Its own requests call it again.
    pub fn hook(&self, hook: impl Fn(Request) + Send + Sync + 'static) {
        *self.hook.lock() = Some(Arc::new(hook));
    }

    pub fn unhook(&self) {
        *self.hook.lock() = None;
    }

    fn call(&self, request: Request) {
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            hook(request);
        }
    }
}

impl fmt::Debug for HookedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedDevice")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl BlockDevice for HookedDevice {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.call(Request::Read);
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.call(Request::Write);
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.call(Request::Flush);
        self.inner.flush()
    }

    fn discard_geometry(&self) -> Option<DiscardGeometry> {
        self.inner.discard_geometry()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.call(Request::Discard);
        self.inner.discard(offset, len)
    }
}
