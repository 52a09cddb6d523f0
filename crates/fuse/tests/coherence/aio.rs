//! Several direct reads or writes in flight at once: by the kernel's AIO, as in libaio, and by io_uring.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

/// Memory with the alignment for direct I/O.
pub(crate) struct Aligned(*mut u8, usize);

// SAFETY: it owns the memory.
unsafe impl Send for Aligned {}

impl Aligned {
    const PAGE: usize = 4096;

    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, Self::PAGE).unwrap()
    }

    pub(crate) fn new(len: usize) -> Aligned {
        // SAFETY: the length is not 0.
        let start = unsafe { std::alloc::alloc_zeroed(Self::layout(len)) };
        assert!(!start.is_null());
        Aligned(start, len)
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { std::alloc::dealloc(self.0, Self::layout(self.1)) }
    }
}

impl std::ops::Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer was allocated with this length, and zeroed.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

impl std::ops::DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
}

/// A request. The completion returns its `slot`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) slot: u64,
    pub(crate) writes: bool,
    pub(crate) offset: u64,
}

/// A queue of asynchronous requests.
pub(crate) trait Queue {
    /// Submits a request. The buffer is not touched until the completion.
    fn submit(&mut self, file: &File, asked: Asked, buffer: &mut Aligned);
    /// Waits for a completion, and returns its slot and its result.
    fn complete(&mut self) -> (u64, io::Result<usize>);
}

#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_file: u32,
}

#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<Event>() == 32);

/// The kernel's AIO.
pub(crate) struct Aio(libc::c_ulong);

impl Aio {
    pub(crate) fn new(depth: usize) -> Aio {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the context is written during the call.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, depth, &raw mut context) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        Aio(context)
    }
}

impl Queue for Aio {
    fn submit(&mut self, file: &File, asked: Asked, buffer: &mut Aligned) {
        const PREAD: u16 = 0;
        const PWRITE: u16 = 1;
        let mut iocb = Iocb {
            data: asked.slot,
            opcode: if asked.writes { PWRITE } else { PREAD },
            file: file.as_raw_fd() as u32,
            buffer: buffer.as_mut_ptr() as u64,
            len: buffer.len() as u64,
            offset: asked.offset as i64,
            ..Iocb::default()
        };
        let mut list = [&raw mut iocb];
        // SAFETY: the kernel copies the request; the buffer lives until its completion is taken.
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_mut_ptr()) };
        assert_eq!(taken, 1, "{}", io::Error::last_os_error());
    }

    fn complete(&mut self) -> (u64, io::Result<usize>) {
        let mut event = Event::default();
        let forever = std::ptr::null::<libc::timespec>();
        loop {
            // SAFETY: there is room for one event.
            let got = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.0,
                    1,
                    1,
                    &raw mut event,
                    forever,
                )
            };
            if got == 1 {
                return (event.data, result(event.result));
            }
            let error = io::Error::last_os_error();
            assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
        }
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: it waits for the requests in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

fn result(code: i64) -> io::Result<usize> {
    usize::try_from(code).map_err(|_| io::Error::from_raw_os_error(-code as i32))
}

impl Queue for IoUring {
    fn submit(&mut self, file: &File, asked: Asked, buffer: &mut Aligned) {
        let fd = types::Fd(file.as_raw_fd());
        let len = buffer.len() as u32;
        let entry = if asked.writes {
            opcode::Write::new(fd, buffer.as_ptr(), len)
                .offset(asked.offset)
                .build()
        } else {
            opcode::Read::new(fd, buffer.as_mut_ptr(), len)
                .offset(asked.offset)
                .build()
        };
        // SAFETY: the buffer lives until its completion is taken.
        unsafe { self.submission().push(&entry.user_data(asked.slot)) }.unwrap();
        IoUring::submit(self).unwrap();
    }

    fn complete(&mut self) -> (u64, io::Result<usize>) {
        loop {
            if let Some(done) = self.completion().next() {
                return (done.user_data(), result(done.result().into()));
            }
            match self.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => panic!("{error}"),
                _ => {}
            }
        }
    }
}
