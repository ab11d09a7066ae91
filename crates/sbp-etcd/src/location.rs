//! Where a cluster's metadata are: `etcd://host:port,host:port/NAME`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The port of etcd for clients, where none is given.
const PORT: u16 = 2_379;
/// The longest name of a cluster.
const LONGEST_NAME: usize = 64;
/// More members than an etcd has.
const MOST_MEMBERS: usize = 16;

/// The members of an etcd, and the name of a cluster whose metadata they keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// `host:port` of each.
    pub members: Vec<String>,
    /// The name that sets the keys of this cluster apart from those of others.
    pub name: String,
}

/// Why a text is no [`Location`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not where an etcd keeps a cluster's metadata: {why}; write etcd://HOST:PORT,HOST:PORT/NAME")]
pub struct LocationError {
    text: String,
    why: String,
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        read(text).map_err(|why| LocationError {
            text: text.to_owned(),
            why,
        })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}/{}", self.members.join(","), self.name)
    }
}

fn read(text: &str) -> Result<Location, String> {
    let rest = text.strip_prefix("etcd://").ok_or("it does not begin with etcd://")?;
    let (members, name) = rest.split_once('/').ok_or("the cluster's name is missing")?;
    if name.is_empty() {
        return Err("the cluster's name is missing".to_owned());
    }
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
        return Err(format!(
            "the name {name:?} may have up to {LONGEST_NAME} letters, digits, dots, hyphens and underscores"
        ));
    }
    let members: Vec<_> = members.split(',').map(member).collect::<Result<_, _>>()?;
    if members.len() > MOST_MEMBERS {
        return Err(format!(
            "it names {} members, at most {MOST_MEMBERS} are used",
            members.len()
        ));
    }
    if let Some((index, twice)) = members
        .iter()
        .enumerate()
        .find(|(index, one)| members[..*index].contains(one))
    {
        return Err(format!("member {} is {twice} again", index + 1));
    }
    Ok(Location {
        members,
        name: name.to_owned(),
    })
}

/// `host:port` of a member that is written with its port or without.
fn member(text: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("the member {text:?} {why}"));
    if text.contains('@') {
        return wrong("names a user: etcd is told who this is by a certificate");
    }
    // The colons of an IPv6 address stand in brackets.
    let host_end = text.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match text[host_end..].rfind(':') {
        Some(colon) => (&text[..host_end + colon], text[host_end + colon + 1..].parse().ok()),
        None => (text, Some(PORT)),
    };
    let Some(port @ 1..) = port else {
        return wrong("has no port from 1 to 65535");
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    if host.is_empty() || (!is_bracketed && host.contains([':', '[', ']'])) || host.contains(char::is_whitespace) {
        return wrong("has no host");
    }
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_name_are_read() {
        let cases = [
            ("etcd://a:1/orders", &["a:1"][..], "orders"),
            (
                "etcd://a,b:3,[::1]/x-1_y.z",
                &["a:2379", "b:3", "[::1]:2379"],
                "x-1_y.z",
            ),
            ("etcd://[::1]:5/x", &["[::1]:5"], "x"),
        ];
        for (text, members, name) in cases {
            let location: Location = text.parse().expect(text);
            assert_eq!(
                (location.members.as_slice(), location.name.as_str()),
                (
                    &members.iter().map(|member| (*member).to_owned()).collect::<Vec<_>>()[..],
                    name
                )
            );
            assert_eq!(
                location.to_string().parse(),
                Ok(location),
                "{text} is written as it is read"
            );
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "does not begin with etcd://"),
            ("http://a:1/x", "does not begin with etcd://"),
            ("etcd://a:1", "name is missing"),
            ("etcd://a:1/", "name is missing"),
            ("etcd://a:1/x/y", "letters"),
            ("etcd://a:1/ü", "letters"),
            ("etcd:///x", "no host"),
            ("etcd://a:1,/x", "no host"),
            ("etcd://a:0/x", "no port"),
            ("etcd://a:b/x", "no port"),
            ("etcd://::1/x", "no host"),
            ("etcd://me:secret@a:1/x", "certificate"),
            ("etcd://a:1,b,a:1/x", "member 3 is a:1 again"),
        ] {
            let error = text.parse::<Location>().expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
