//! Which directories and filesystems a `file:` store accepts. Owners, modes and magic numbers are
//! arguments, so that tests cover every case, whichever user runs them.

use rustix::fs::Mode;

use crate::files::exposure;

/// Checks a directory's owner and mode: no other user must be able to replace the files. A private
/// directory must be this user's alone.
pub(super) fn judge_directory(
    owner: u32,
    mode: Mode,
    us: u32,
    is_private: bool,
) -> Result<(), (String, String)> {
    if is_private {
        if owner == us && !mode.intersects(Mode::RWXG | Mode::RWXO) {
            return Ok(());
        }
        let what = format!(
            "must be accessible only to this user, but is owned by uid {owner} with mode {:o} \
             (this instance runs as uid {us})",
            mode.bits()
        );
        return Err((what, "remove it, or set another --store".to_owned()));
    }
    if let Some((what, remedy)) = exposure(owner, mode, us) {
        return Err((what, format!("{remedy}, or set another --store")));
    }
    Ok(())
}

/// Returns the name of a filesystem on which `flock` and `rename` are known to work between all
/// processes of a host.
pub(super) fn local_filesystem(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x0000_ef53 => "ext",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlay",
        _ => return None,
    })
}

/// Returns the name of another filesystem that is commonly tried, for messages.
pub(super) fn other_filesystem(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x0000_6969 => "nfs",
        0xff53_4d42 | 0xfe53_4d42 | 0x0000_517b => "smb",
        0x6573_5546 => "fuse",
        0x0102_1997 => "9p",
        0x00c3_6400 => "ceph",
        0x0bd0_0bd0 => "lustre",
        0x0116_1970 => "gfs2",
        0x7461_636f => "ocfs2",
        0x0000_4d44 => "vfat",
        0x0000_9fa0 => "proc",
        0x6265_6572 => "sysfs",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(owner: u32, mode: u32, us: u32) -> bool {
        judge_directory(owner, Mode::from_raw_mode(mode), us, true).is_ok()
    }

    #[test]
    fn a_private_directory_is_accessible_to_its_user_only() {
        assert!(judged(1000, 0o700, 1000));
        assert!(!judged(1000, 0o750, 1000));
        assert!(!judged(1000, 0o701, 1000));
        assert!(!judged(0, 0o700, 1000));
    }

    #[test]
    fn filesystems_have_the_numbers_of_statfs() {
        let local = [
            (0xef53, "ext"),
            (0x5846_5342, "xfs"),
            (0x9123_683e, "btrfs"),
            (0x2fc1_2fc1, "zfs"),
            (0xf2f5_2010, "f2fs"),
            (0x0102_1994, "tmpfs"),
            (0x794c_7630, "overlay"),
        ];
        let others = [
            (0x6969, "nfs"),
            (0xff53_4d42, "smb"),
            (0xfe53_4d42, "smb"),
            (0x517b, "smb"),
            (0x6573_5546, "fuse"),
            (0x0102_1997, "9p"),
            (0x00c3_6400, "ceph"),
            (0x0bd0_0bd0, "lustre"),
            (0x0116_1970, "gfs2"),
            (0x7461_636f, "ocfs2"),
            (0x4d44, "vfat"),
            (0x9fa0, "proc"),
            (0x6265_6572, "sysfs"),
        ];
        for (magic, name) in local {
            assert_eq!((local_filesystem(magic), other_filesystem(magic)), (Some(name), None));
        }
        for (magic, name) in others {
            assert_eq!((local_filesystem(magic), other_filesystem(magic)), (None, Some(name)));
        }
    }

    #[test]
    fn network_filesystems_are_not_local() {
        for magic in [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0] {
            assert_eq!(local_filesystem(magic), None, "{magic:x}");
        }
    }
}
