//! What the words of `-o` are taken for.

use super::*;

fn parse(words: &str) -> Result<Options, OptionError> {
    let mut options = Options::default();
    options.add(OsStr::new(words))?;
    options.check()?;
    Ok(options)
}

#[test]
fn a_mount_that_is_not_read_only_is_refused_with_the_way_out() {
    for words in ["", "rw", "ro,rw", "noatime"] {
        let error = parse(words).unwrap_err();
        assert_eq!(error, OptionError::ReadWrite);
        assert_eq!(
            error.to_string(),
            "read-write mounts are not supported yet; use -o ro"
        );
    }
}

#[test]
fn subvolume_options_are_read() {
    let options = parse("ro,subvol=/a/b=c,subvolid=0x101").unwrap();
    assert_eq!(options.subvol.as_deref(), Some(&b"/a/b=c"[..]));
    assert_eq!(options.subvolid, Some(RootId(257)));
    assert_eq!(parse("ro,subvolid=0").unwrap().subvolid, Some(RootId(5)));
    assert!(parse("ro,subvolid=five").is_err());
    assert_eq!(
        parse("ro,subvol"),
        Err(OptionError::NoValue("subvol".into()))
    );
}

#[test]
fn unknown_options_are_refused_by_name() {
    assert_eq!(
        parse("ro,frobnicate"),
        Err(OptionError::Unknown("frobnicate".into()))
    );
    assert_eq!(
        parse("ro,frobnicate=3"),
        Err(OptionError::Unknown("frobnicate".into()))
    );
    assert_eq!(parse("ro=1"), Err(OptionError::UnwantedValue("ro".into())));
}

#[test]
fn options_of_btrfs_that_only_matter_to_writers_are_accepted() {
    let words = "ro,compress=zstd:3,compress-force,commit=30,space_cache=v2,ssd,autodefrag,\
                 discard=async,max_inline=2048,noatime,nodatacow,x-systemd.automount,defaults,nofail";
    let options = parse(words).unwrap();
    assert!(options.no_atime);
    assert!(options.without_effect.contains(&"compress=zstd:3".into()));
}

#[test]
fn rescue_words_are_known_alone_together_and_by_their_old_names() {
    let options = parse("ro,rescue=usebackuproot:ibadroots,nologreplay").unwrap();
    assert_eq!(
        options.rescue,
        Rescue {
            use_backup_root: true,
            no_log_replay: true,
            ignore_bad_roots: true,
            ..Rescue::default()
        }
    );
    let all = parse("ro,rescue=all").unwrap().rescue;
    assert!(all.ignore_data_csums && all.ignore_meta_csums && !all.use_backup_root);
    assert_eq!(
        parse("ro,rescue=everything"),
        Err(OptionError::BadValue {
            name: "rescue".into(),
            value: "everything".into()
        })
    );
}

#[test]
fn devices_add_up_and_later_words_win() {
    let options = parse("ro,device=/dev/a,device=b.img,suid,nosuid,threads=3,fsname=pool").unwrap();
    assert_eq!(options.devices, [PathBuf::from("/dev/a"), "b.img".into()]);
    assert!(!options.suid);
    assert_eq!(options.threads.map(NonZeroUsize::get), Some(3));
    assert!(parse("ro,threads=0").is_err());
    assert!(parse("ro,threads=99999").is_err());
}

#[test]
fn fakeroot_is_for_oneself_only() {
    assert!(parse("ro,fakeroot").unwrap().fakeroot);
    assert_eq!(
        parse("ro,fakeroot,allow_other"),
        Err(OptionError::Conflict("fakeroot", "allow_other"))
    );
}

#[test]
fn the_transport_is_chosen_by_name() {
    let choice = |words| parse(words).map(|options| options.transport);
    assert_eq!(choice("ro"), Ok(TransportChoice::Auto));
    assert_eq!(choice("ro,transport=uring"), Ok(TransportChoice::Uring));
    assert_eq!(choice("ro,transport=classic"), Ok(TransportChoice::Classic));
    assert!(choice("ro,transport=pigeon").is_err());
    assert_eq!(
        choice("ro,transport"),
        Err(OptionError::NoValue("transport".into()))
    );
}
