//! Parsing the words of `-o`.

use std::ffi::OsStr;

use ubtrfs_fs::volume_words;

use super::*;

fn parse(words: &str) -> Result<Options, OptionError> {
    let mut options = Options::default();
    options.add(OsStr::new(words))?;
    options.check()?;
    Ok(options)
}

/// Returns an option of the volume as text.
fn text(options: &Options, name: &str) -> String {
    options.volume.text(name).unwrap()
}

fn is_set(options: &Options, name: &str) -> bool {
    text(options, name) == "true"
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

/// Returns the accepted words without effect, in their order.
fn idle_words(options: &Options) -> Vec<&str> {
    let words = options.without_effect.iter();
    words.map(|idle| idle.word.as_str()).collect()
}

#[test]
fn words_that_change_nothing_are_accepted_and_some_warned_of() {
    let words = "ssd,autodefrag,inode_cache,space_cache=v2,x-systemd.automount,defaults,nofail,\
                 metadata_ratio=4,comment=systemd";
    let options = parse(words).unwrap();
    let known = [
        "ssd",
        "autodefrag",
        "inode_cache",
        "x-systemd.automount",
        "defaults",
        "nofail",
        "metadata_ratio=4",
        "comment=systemd",
    ];
    assert_eq!(idle_words(&options), known);
    let warned = options.without_effect.iter();
    let warned: Vec<_> = warned
        .filter(|idle| idle.warning.is_some())
        .map(|idle| idle.word.as_str())
        .collect();
    assert_eq!(warned, ["autodefrag", "inode_cache"]);
}

#[test]
fn words_of_fstab_are_taken_and_those_that_the_kernels_btrfs_refuses_are_not() {
    for words in [
        "defaults,user,noauto,nofail,_netdev,x-systemd.device-timeout=5,comment=x",
        "users,owner,group,nouser,nousers,noowner,nogroup,auto,mand,nomand,iversion,silent",
        "space_cache=v2,clear_cache,rescan_uuid_tree,symfollow,nosymfollow",
    ] {
        assert!(parse(words).is_ok(), "{words}");
    }
    for word in ["user_xattr", "nouser_xattr", "noclear_cache", "quota"] {
        assert_eq!(parse(word), Err(OptionError::Unknown(word.into())));
    }
    assert!(is_set(
        &parse("clear_cache").unwrap(),
        "clear_free_space_tree"
    ));
    assert!(parse("nosymfollow").unwrap().no_symfollow);
}

#[test]
fn contexts_are_kept_as_they_were_said() {
    let words = r#"context="system_u:object_r:x_t:s0:c1,c2",ro,rootcontext=a"#;
    let options = parse(words).unwrap();
    assert_eq!(
        options.security,
        [
            r#"context="system_u:object_r:x_t:s0:c1,c2""#,
            "rootcontext=a"
        ]
    );
    assert_eq!(options.read_only, Some(true));
    assert_eq!(
        parse("fscontext"),
        Err(OptionError::NoValue("fscontext".into()))
    );
}

#[test]
fn how_data_is_stored_follows_the_last_word_with_the_kernel_s_consequences() {
    let stored = |words| {
        let options = parse(words).unwrap();
        let flags = (
            is_set(&options, "no_data_cow"),
            is_set(&options, "no_data_sum"),
        );
        (flags, text(&options, "compress"))
    };
    assert_eq!(
        stored("nodatacow,compress=zstd:9"),
        ((false, false), "zstd:9".into())
    );
    assert_eq!(stored("compress,nodatacow"), ((true, true), "none".into()));
    assert_eq!(
        stored("nodatacow,compress=no,datacow"),
        ((false, true), "none".into())
    );
    assert_eq!(stored("nodatacow,datasum"), ((false, false), "none".into()));
    assert_eq!(
        stored("compress=zstd:99"),
        ((false, false), "zstd:99".into())
    );
    let forced = |words| parse(words).unwrap().volume.default_compression().force;
    assert!(forced("compress-force") && !forced("compress-force,compress"));
    for bad in [
        "compress=zip",
        "max_inline=x",
        "memory=x",
        "memory=0",
        "commit=soon",
        "discard=later",
        "subvol=",
    ] {
        let refused = matches!(parse(bad), Err(OptionError::BadValue { .. }));
        assert!(refused, "{bad}");
    }
}

#[test]
fn numbers_of_a_writer_are_read() {
    let options =
        parse("commit=5,max_inline=1k,memory=96m,flushoncommit,user_subvol_rm_allowed").unwrap();
    assert_eq!(options.memory_bytes(), 96 << 20);
    assert_eq!(text(&options, "commit_interval"), "5");
    assert_eq!(text(&options, "max_inline_bytes"), "1k");
    assert!(is_set(&options, "flush_on_commit") && options.user_subvol_rm_allowed);
    let default = parse("commit=5,commit=0").unwrap();
    assert_eq!(text(&default, "commit_interval"), "30");
}

#[test]
fn writes_are_collected_only_if_asked_for() {
    assert!(!parse("").unwrap().writeback);
    assert!(parse("writeback").unwrap().writeback);
    assert!(!parse("writeback,nowriteback").unwrap().writeback);
}

#[test]
fn opens_are_sent_if_chosen_or_needed() {
    let asks = |words| parse(words).unwrap().needs_opens();
    assert!(!asks("") && !asks("opens,noopens"));
    assert!(asks("opens") && asks("writeback") && !asks("nodatacow"));
}

#[test]
fn discards_are_chosen_as_by_the_kernel() {
    let mode = |words| text(&parse(words).unwrap(), "discard");
    assert_eq!(mode("compress"), "true");
    assert_eq!(mode("discard"), "sync");
    assert_eq!(mode("discard=sync"), "sync");
    assert_eq!(mode("nodiscard,discard=async"), "async");
    assert_eq!(mode("discard=async,nodiscard"), "false");
    let refused = parse("nodiscard=sync");
    assert_eq!(refused, Err(OptionError::UnwantedValue("nodiscard".into())));
}

#[test]
fn times_are_lazy_if_asked_for() {
    assert!(!is_set(&parse("").unwrap(), "lazy_times"));
    assert!(is_set(&parse("lazytime").unwrap(), "lazy_times"));
    assert!(!is_set(
        &parse("lazytime,nolazytime").unwrap(),
        "lazy_times"
    ));
}

#[test]
fn access_times_follow_the_last_word() {
    let atime = |words| parse(words).unwrap().atime;
    assert_eq!(atime(""), AtimePolicy::Relative);
    assert_eq!(atime("noatime"), AtimePolicy::Never);
    assert_eq!(atime("noatime,strictatime"), AtimePolicy::Always);
    assert_eq!(atime("strictatime,relatime"), AtimePolicy::Relative);
}

#[test]
fn options_that_are_known_and_refused_say_why() {
    for words in [
        "bind",
        "uid=3",
        "max_read=4096",
        "space_cache",
        "space_cache=v1",
        "nospace_cache",
    ] {
        let refused = matches!(parse(words), Err(OptionError::Unsupported(..)));
        assert!(refused, "{words}");
    }
    let error = parse("rescue=all").unwrap_err();
    assert_eq!(
        error.to_string(),
        "mount option 'rescue' needs 'ro' as well"
    );
}

#[test]
fn a_sloppy_mount_takes_what_nobody_knows() {
    let mut options = Options {
        sloppy: true,
        ..Options::default()
    };
    options.add(OsStr::new("frobnicate=3,ro")).unwrap();
    assert_eq!(idle_words(&options), ["frobnicate"]);
    assert_eq!(options.read_only, Some(true));
}

#[test]
fn logs_and_the_kind_of_mount_are_chosen() {
    let options = parse("log=/var/log/a b.log,loglevel=debug,noblkdev").unwrap();
    assert_eq!(options.log.as_deref(), Some(&b"/var/log/a b.log"[..]));
    assert_eq!(options.log_level.as_deref(), Some("debug"));
    assert_eq!(options.block_mount, BlockMount::Never);
    assert!(parse("log=").is_err());
}

#[test]
fn syncs_write_logs_unless_commits_are_asked_for() {
    let logs = |words| is_set(&parse(words).unwrap(), "fsync_log");
    assert!(logs("treelog") && logs("notreelog,treelog"));
    let flushes = |words| is_set(&parse(words).unwrap(), "barriers");
    assert!(flushes("") && flushes("nobarrier,barrier") && !flushes("nobarrier"));
    assert!(!logs("treelog,notreelog"));
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
fn only_the_roots_of_an_earlier_transaction_are_rescued_for_writing() {
    for words in ["usebackuproot", "recovery", "rescue=usebackuproot,rw"] {
        assert!(parse(words).unwrap().rescue.use_backup_root, "{words}");
    }
    for words in [
        "nologreplay",
        "rescue=nologreplay",
        "rescue=ibadroots,rw",
        "rescue=idatacsums",
        "rescue=imetacsums",
        "rescue=isuperflags",
        "rescue=ignoreitemflags",
        "rescue=iitemflags",
        "rescue=usebackuproot:ibadroots",
    ] {
        let error = parse(words).unwrap_err();
        assert_eq!(error, OptionError::NeedsReadOnly("rescue"), "{words}");
    }
}

#[test]
fn devices_add_up_and_later_words_win() {
    let options = parse("ro,device=/dev/a,device=b.img,suid,nosuid,threads=3,fsname=pool").unwrap();
    assert_eq!(
        options.devices,
        [DeviceName::from("/dev/a"), "b.img".into()]
    );
    assert_eq!(options.suid, Some(false));
    assert_eq!(options.threads.map(NonZeroUsize::get), Some(3));
    assert!(parse("ro,threads=0").is_err());
    assert!(parse("ro,threads=99999").is_err());
}

#[test]
fn mounts_by_users_have_no_set_id_bits_and_no_devices_unless_it_is_said() {
    let rights = |words| {
        let options = parse(words).unwrap();
        (options.suid, options.dev, options.no_exec)
    };
    assert_eq!(rights("defaults"), (None, None, false));
    for words in ["user", "users"] {
        assert_eq!(rights(words), (Some(false), Some(false), true));
    }
    for words in ["owner", "group"] {
        assert_eq!(rights(words), (Some(false), Some(false), false));
    }
    assert_eq!(rights("user,suid,exec"), (Some(true), Some(false), false));
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
fn a_loop_device_is_asked_for_or_forbidden_and_is_its_own_source() {
    let asked = |words| parse(words).map(|options| options.loop_mount);
    assert_eq!(asked("ro"), Ok(None));
    assert_eq!(asked("ro,loop"), Ok(Some(true)));
    assert_eq!(asked("loop,noloop"), Ok(Some(false)));
    assert_eq!(
        asked("loop,fsname=pool"),
        Err(OptionError::Conflict("loop", "fsname"))
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

#[test]
fn every_word_has_one_row() {
    let of_volumes = volume_words().map(|word| word.name);
    let mut names: Vec<_> = words::TABLES
        .iter()
        .copied()
        .flatten()
        .map(|word| word.name)
        .chain(of_volumes)
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn completed_words_are_options() {
    for word in words_to_complete() {
        let value = match word.as_str() {
            "device=" | "fsname=" | "log=" | "subvol=" => "/x",
            "loglevel=" => "info",
            word if word.ends_with('=') => "8",
            _ => "",
        };
        let written = format!("{word}{value}");
        assert_eq!(
            Options::default().add(OsStr::new(&written)),
            Ok(()),
            "{written}"
        );
    }
}

#[test]
fn page_for_users_lists_the_words_of_remounts() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mount.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, list) = page.split_once("`mount -o remount` changes").unwrap();
    let (list, _) = list.split_once("\n\n## ").unwrap();
    let mut words: Vec<_> = list.split('`').skip(1).step_by(2).collect();
    words.sort_unstable();
    assert_eq!(words, words_of_remounts());
}
