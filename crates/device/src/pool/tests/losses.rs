//! All mirrors read equally, and tolerated losses are invisible.

use super::*;
use crate::chunk_map::STRIPE_LEN;

fn read_all(pool: &Pool) -> Result<Vec<u8>, crate::error::ReadFailure> {
    let mut buf = vec![0; DATA_BYTES as usize];
    let mut good = checker(DATA_START, 4096);
    pool.read_checked(DATA_START, &mut buf, 4096, &mut good)?;
    Ok(buf)
}

#[test]
fn every_mirror_of_every_profile_reads_the_same() {
    for (profile, stripes) in LAYOUTS {
        let volume = TestVolume::new(profile, stripes);
        let pool = volume.pool(|_| true, &PoolOptions::new()).unwrap();
        let wanted = expected(DATA_START, DATA_BYTES as usize);
        let mirrors = pool.mirrors(DATA_START).unwrap();
        for mirror in 1..=mirrors {
            let mut buf = vec![0; wanted.len()];
            let read = pool.read_mirror(DATA_START, &mut buf, mirror);
            // With a single data member, a mirror may exclude more members than the parities can replace.
            assert!(
                read.is_ok(),
                "{profile:?} x{stripes} mirror {mirror}: {read:?}"
            );
            assert!(buf == wanted, "{profile:?} x{stripes} mirror {mirror}");
        }
        for mirror in [0, mirrors + 1] {
            assert!(matches!(
                pool.read_mirror(DATA_START, &mut [0; 1], mirror),
                Err(DeviceError::NoMirror { .. })
            ));
        }
        assert_eq!(pool.read_error_count(), 0);
    }
}

#[test]
fn every_set_of_tolerated_losses_reads_whole() {
    for (profile, stripes) in LAYOUTS {
        let volume = TestVolume::new(profile, stripes);
        for lost in 0u32..1 << stripes {
            let keep = |devid: u64| lost & 1 << (devid - 1) == 0;
            if lost.count_ones() as usize > profile.tolerated_failures() || !keep(1) && stripes == 1
            {
                continue;
            }
            let pool = volume.pool(keep, &degraded()).unwrap();
            let read = read_all(&pool);
            assert!(
                read.is_ok(),
                "{profile:?} x{stripes} without {lost:b}: {:?}",
                read.err()
            );
            assert_eq!(
                pool.read_error_count(),
                0,
                "a missing device is no read error"
            );
        }
    }
}

#[test]
fn losses_beyond_the_profile_are_errors_that_name_the_place() {
    for (profile, stripes) in LAYOUTS {
        let volume = TestVolume::new(profile, stripes);
        let lost = profile.tolerated_failures() as u64 + 1;
        // Devices are removed from the front: for RAID10 this is the first pair.
        if u64::from(stripes) <= lost || profile == Profile::Dup {
            continue;
        }
        let pool = volume.pool(|devid| devid > lost, &degraded()).unwrap();
        let failure = read_all(&pool).unwrap_err();
        assert_eq!(
            failure.attempts.len(),
            pool.mirrors(failure.logical).unwrap()
        );
        assert!(failure.to_string().contains("missing") || failure.to_string().contains("lost"));
        assert!(pool.unrecovered_count() > 0);
    }
}

#[test]
fn reads_may_start_and_end_anywhere() {
    for (profile, stripes) in LAYOUTS {
        let volume = TestVolume::new(profile, stripes);
        let keep = |devid| devid != 2 || profile.tolerated_failures() == 0;
        let pool = volume.pool(keep, &degraded()).unwrap();
        let mut step = 1;
        let mut offset = 1;
        while offset + step < DATA_BYTES {
            let start = Logical(DATA_START.0 + offset);
            let mut buf = vec![0; step as usize];
            pool.read_checked(start, &mut buf, 1000, &mut checker(start, 1000))
                .unwrap();
            assert!(
                buf == expected(start, buf.len()),
                "{profile:?} {offset} {step}"
            );
            offset += step;
            step = (step * 3) % (3 * STRIPE_LEN) + 1;
        }
    }
}

#[test]
fn address_outside_every_chunk_is_an_error() {
    let volume = TestVolume::new(Profile::Raid1, 2);
    let pool = volume.pool(|_| true, &PoolOptions::new()).unwrap();
    for start in [0, DATA_START.0 + DATA_BYTES - 4096, u64::MAX - 4096] {
        let start = Logical(start);
        let mut buf = [0; 8192];
        let mirror = pool.read_mirror(start, &mut buf, 1);
        assert!(matches!(mirror, Err(DeviceError::NoChunk { .. })));
        let failure = pool.read_checked(start, &mut buf, 4096, &mut |_, _| true);
        assert!(failure.is_err());
    }
    let edge = Logical(DATA_START.0 + DATA_BYTES - 4096);
    let failure = pool.read_checked(edge, &mut [0; 8192], 4096, &mut |_, _| true);
    assert_eq!(
        failure.unwrap_err().index,
        1,
        "the block inside the chunk was read"
    );
}
