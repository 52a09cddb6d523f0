//! Paths and URIs of devices, with a path in the volume and without.

use super::*;

/// Splits an argument where only `images` exist. Returns the name, the path in the volume, and the scheme of a URI.
fn split(argument: &str, images: &[&str]) -> (String, String, Option<String>) {
    let is_image = |path: &Path| images.iter().any(|image| path == Path::new(image));
    let (name, path) = DeviceName::split_with(OsStr::new(argument), &is_image);
    let scheme = match &name {
        DeviceName::Path(_) => None,
        DeviceName::Uri(uri) => Some(uri.scheme().to_owned()),
    };
    let path = String::from_utf8(path).unwrap();
    (name.to_string(), path, scheme)
}

fn path(image: &str, path: &str) -> (String, String, Option<String>) {
    (image.to_owned(), path.to_owned(), None)
}

fn uri(name: &str, path: &str, scheme: &str) -> (String, String, Option<String>) {
    (name.to_owned(), path.to_owned(), Some(scheme.to_owned()))
}

#[test]
fn an_image_alone_is_its_root() {
    assert_eq!(split("disk.img", &["disk.img"]), path("disk.img", "/"));
    assert_eq!(split("a:/b", &["a:/b"]), path("a:/b", "/"));
    assert_eq!(split("DISK1", &["DISK1", "DISK2"]), path("DISK1", "/"));
    assert_eq!(split("DISK2:/x", &["DISK1", "DISK2"]), path("DISK2", "/x"));
}

#[test]
fn an_image_name_may_contain_colons() {
    assert_eq!(split("a:b.img:/c", &["a:b.img"]), path("a:b.img", "/c"));
    assert_eq!(split("./a:b", &["./a:b"]), path("./a:b", "/"));
    assert_eq!(split("./a:b", &[]), path("./a:b", "/"));
    assert_eq!(
        split(
            "/dev/disk/by-path/pci-0:1:/x",
            &["/dev/disk/by-path/pci-0:1"]
        ),
        path("/dev/disk/by-path/pci-0:1", "/x")
    );
}

#[test]
fn a_path_may_contain_a_colon_and_slash() {
    assert_eq!(split("d.img:/a:/b", &["d.img"]), path("d.img", "/a:/b"));
}

#[test]
fn without_an_image_the_last_place_is_split() {
    assert_eq!(split("no.img:/a:/b", &[]), path("no.img:/a", "/b"));
    assert_eq!(split("no.img", &[]), path("no.img", "/"));
    assert_eq!(split(":/a", &[]), path(":/a", "/"));
    assert_eq!(split("", &[]), path("", "/"));
}

#[test]
fn a_uri_ends_before_the_path_in_the_volume() {
    let tcp = "nbd://host:10809/export";
    assert_eq!(split(tcp, &[]), uri(tcp, "/", "nbd"));
    assert_eq!(
        split("nbd://host:10809/export:/path", &[]),
        uri(tcp, "/path", "nbd")
    );
    assert_eq!(
        split("nbd://host:10809/export:/a:/b", &[]),
        uri(tcp, "/a:/b", "nbd")
    );
    let ipv6 = "nbd://[::1]:10809/export";
    assert_eq!(
        split("nbd://[::1]:10809/export:/", &[]),
        uri(ipv6, "/", "nbd")
    );
    let unix = "nbd+unix:///?socket=/run/s";
    assert_eq!(split(unix, &[]), uri(unix, "/", "nbd+unix"));
    assert_eq!(
        split("nbd+unix:///?socket=/run/s:/etc", &[]),
        uri(unix, "/etc", "nbd+unix")
    );
}

#[test]
fn an_existing_path_is_no_uri() {
    assert_eq!(split("nbd://a", &["nbd://a"]), path("nbd://a", "/"));
    assert_eq!(split("nbd://a", &["nbd"]), path("nbd", "//a"));
    assert_eq!(split("no.img://a", &[]), path("no.img", "//a"));
    assert_eq!(split("./nbd://a", &[]), path("./nbd", "//a"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x:").join("a");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "").unwrap();
    let name = folder.path().join("x://a");
    assert_eq!(DeviceName::from(&name).path().unwrap(), name);
}

#[test]
fn a_uri_is_refused_by_its_scheme() {
    let name = DeviceName::from("nbd+unix:///?socket=/run/s");
    assert_eq!(name.path(), Err(UnsupportedScheme("nbd+unix".to_owned())));
}
