//! Grants: what a name may do, and on which streams.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// One kind of right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// To read records, and to see the stream in lists.
    Read,
    /// To append records.
    Write,
    /// To create, change, trim, seal and delete streams, and to see them in lists.
    Admin,
    /// To act as a server of the cluster.
    Server,
}

impl Right {
    /// All rights, in the order in which they are shown.
    pub(crate) const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Admin, Self::Server];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
            Self::Server => "server",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
            Self::Admin => 4,
            Self::Server => 8,
        }
    }
}

/// Several rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(u8);

impl Rights {
    /// These rights.
    pub(crate) const fn of(rights: &[Right]) -> Self {
        let (mut bits, mut rest) = (0, rights);
        while let [first, others @ ..] = rest {
            bits |= first.bit();
            rest = others;
        }
        Self(bits)
    }

    /// Whether one of them is one of `others`.
    pub(crate) fn has_any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    fn with(self, other: Right) -> Self {
        Self(self.0 | other.bit())
    }

    /// The rights, in the order in which they are shown.
    pub(crate) fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.0 & right.bit() != 0)
    }
}

/// `read or admin`.
impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, right) in self.iter().enumerate() {
            if place > 0 {
                f.write_str(" or ")?;
            }
            f.write_str(right.word())?;
        }
        Ok(())
    }
}

/// Which streams a grant is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    /// All, also those without a name.
    Everything,
    /// Those whose names begin so.
    Prefix(Box<str>),
    /// The one of this name.
    Name(Box<str>),
}

impl Pattern {
    fn covers(&self, name: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Prefix(prefix) => name.starts_with(&**prefix),
            Self::Name(own) => name == &**own,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everything => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A right on some streams, written `read:orders`, `write:orders/*`, `admin:*` or `server`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Grant {
    right: Right,
    pattern: Pattern,
}

/// Why a text is no grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no grant: {why}. A grant is read, write or admin, a colon, and a stream's name, a prefix that ends with *, \
     or *, as in read:orders/*; or it is the word server"
)]
pub struct BadGrant {
    text: String,
    why: &'static str,
}

impl FromStr for Grant {
    type Err = BadGrant;

    fn from_str(text: &str) -> Result<Self, BadGrant> {
        let bad = |why| BadGrant {
            text: text.to_owned(),
            why,
        };
        let (word, streams) = text.split_once(':').unwrap_or((text, ""));
        let right = Right::ALL.into_iter().find(|right| right.word() == word);
        let right = right.ok_or_else(|| bad("it does not begin with read, write, admin or server"))?;
        let pattern = match (right, streams) {
            (Right::Server, "" | "*") => Pattern::Everything,
            (Right::Server, _) => return Err(bad("server is not about single streams")),
            (_, "") => return Err(bad("it does not say for which streams")),
            (_, "*") => Pattern::Everything,
            (_, streams) => match streams.strip_suffix('*') {
                Some(prefix) => Pattern::Prefix(prefix.into()),
                None => Pattern::Name(streams.into()),
            },
        };
        let name = match &pattern {
            Pattern::Everything => "",
            Pattern::Prefix(name) | Pattern::Name(name) => name,
        };
        // A prefix is the beginning of a name, and that is a name too.
        if !name.is_empty() && !sbp_messages::is_valid_stream_name(name) {
            return Err(bad("no stream can have such a name"));
        }
        Ok(Self { right, pattern })
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.right {
            Right::Server => f.write_str("server"),
            right => write!(f, "{}:{}", right.word(), self.pattern),
        }
    }
}

impl TryFrom<String> for Grant {
    type Error = BadGrant;

    fn try_from(text: String) -> Result<Self, BadGrant> {
        text.parse()
    }
}

impl From<Grant> for String {
    fn from(grant: Grant) -> Self {
        grant.to_string()
    }
}

/// All that a name may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    /// Rights on everything.
    everywhere: Rights,
    grants: SmallVec<[Grant; 4]>,
}

impl Grants {
    pub(crate) fn new(grants: impl IntoIterator<Item = Grant>) -> Self {
        let grants: SmallVec<[Grant; 4]> = grants.into_iter().collect();
        let everywhere = grants.iter().filter(|grant| grant.pattern == Pattern::Everything);
        Self {
            everywhere: everywhere.fold(Rights::default(), |rights, grant| rights.with(grant.right)),
            grants,
        }
    }

    /// The rights on every stream, also on those that do not exist.
    pub(crate) fn everywhere(&self) -> Rights {
        self.everywhere
    }

    /// The rights on the stream of this name. The empty name is that of streams without one, and of streams that do not
    /// exist: who has no right on everything has none on these, by the same comparisons as for any other name.
    pub(crate) fn on(&self, name: &str) -> Rights {
        let covering = self.grants.iter().filter(|grant| grant.pattern.covers(name));
        covering.fold(Rights::default(), |rights, grant| rights.with(grant.right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(texts: &[&str]) -> Grants {
        Grants::new(texts.iter().map(|text| text.parse().expect("a grant")))
    }

    #[test]
    fn grants_are_read_and_shown_alike() {
        for text in [
            "read:orders",
            "write:orders/*",
            "admin:*",
            "server",
            "read:a*",
            "read:a.b-c/d_e*",
        ] {
            assert_eq!(text.parse::<Grant>().expect(text).to_string(), text);
        }
        assert_eq!("server:*".parse::<Grant>().expect("long").to_string(), "server");
        let wrong = [
            "",
            "read",
            "read:",
            "all:*",
            "Read:*",
            "server:orders",
            "read:1",
            "read:a b",
            "read:*a",
            "read:a**",
            "read:/*",
        ];
        for text in wrong {
            let error = text.parse::<Grant>().expect_err(text);
            assert!(error.to_string().contains("read:orders/*"), "{error}");
        }
    }

    #[test]
    fn a_grant_covers_its_streams_and_no_others() {
        let some = grants(&["read:orders/*", "write:orders/eu", "admin:stock"]);
        let cases = [
            ("orders/eu", "read or write"),
            ("orders/us", "read"),
            ("orders/", "read"),
            ("orders", ""),
            ("orders2", ""),
            ("stock", "admin"),
            ("stock2", ""),
            ("stoc", ""),
            ("", ""),
        ];
        for (name, rights) in cases {
            assert_eq!(some.on(name).to_string(), rights, "{name:?}");
        }
        assert_eq!(some.everywhere(), Rights::default());
        let all = grants(&["read:*", "server"]);
        assert_eq!(all.everywhere().to_string(), "read or server");
        assert_eq!(all.on("").to_string(), "read or server", "streams without a name too");
        assert_eq!(grants(&[]).on("orders"), Rights::default());
    }
}
