//! Write-back errors during syncs through several open files.

use std::sync::Arc;

use loom::thread;

use crate::check;
use crate::sync::Mutex;
use crate::writeback_errors::{SeenErrors, WritebackErrors};

/// A file. The mutex models the inode's lock.
#[derive(Default)]
struct File(Mutex<WritebackErrors>);

impl File {
    fn open(&self) -> SeenErrors {
        SeenErrors::at_opening(&self.0.lock())
    }

    /// Returns the number of errors that a sync reports: 0 or 1.
    fn sync(&self, open: &SeenErrors) -> usize {
        usize::from(self.0.lock().report_to(open).is_some())
    }
}

#[test]
fn each_open_file_reports_an_error_once() {
    check(3, || {
        let file = Arc::new(File::default());
        let [one, other] = [file.open(), file.open()];
        let failing = Arc::clone(&file);
        let failing = thread::spawn(move || failing.0.lock().add("no room".to_owned()));
        let beside = Arc::clone(&file);
        let beside = thread::spawn(move || (beside.sync(&other), other));
        let reported = file.sync(&one);
        failing.join().unwrap();
        let (reported_beside, other) = beside.join().unwrap();
        for (reported, open) in [(reported, one), (reported_beside, other)] {
            assert_eq!(reported + file.sync(&open), 1);
            assert_eq!(file.sync(&open), 0);
        }
    });
}

/// Two threads sync through one open file: one of them gets the error.
#[test]
fn syncs_through_one_open_file_report_an_error_once() {
    check(3, || {
        let file = Arc::new(File::default());
        let open = Arc::new(file.open());
        file.0.lock().add("no room".to_owned());
        let (beside, through) = (Arc::clone(&file), Arc::clone(&open));
        let beside = thread::spawn(move || beside.sync(&through));
        let reported = file.sync(&open);
        assert_eq!(reported + beside.join().unwrap(), 1);
        // No other caller has to report it.
        assert_eq!(file.sync(&file.open()), 0);
    });
}
