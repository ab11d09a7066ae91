//! Reads the vectors. Included by the tests that use them and by the fuzz targets, which take their seeds from here.

use std::fs;
use std::path::{Path, PathBuf};

/// One value's bytes, by who wrote them.
#[derive(Clone, Debug, Default)]
pub struct Vector {
    /// Its name within the file.
    pub name: String,
    /// What it is.
    pub about: String,
    /// The value, as JSON.
    pub value: String,
    /// The bytes by writer, in the file's order.
    pub parts: Vec<(String, Vec<u8>)>,
}

impl Vector {
    /// What `who` wrote.
    pub fn by(&self, who: &str) -> Option<&[u8]> {
        let part = self.parts.iter().find(|(name, _)| name == who);
        part.map(|(_, bytes)| bytes.as_slice())
    }
}

/// Where the vectors are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

/// The files of one kind, in order of their names: (name without extension, vectors).
pub fn files(kind: &str) -> Vec<(String, Vec<Vector>)> {
    let entries = fs::read_dir(folder().join(kind)).expect("the vectors are in the repository");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| (stem(&path), parse(&fs::read_to_string(&path).expect("text"))))
        .collect();
    files.sort_by(|(left, _), (right, _)| left.cmp(right));
    files
}

/// The text of a file with these vectors.
pub fn render(vectors: &[Vector]) -> String {
    let mut text = Vec::new();
    for vector in vectors {
        text.push(format!("== {} · {}", vector.name, vector.about));
        text.push(vector.value.clone());
        for (who, bytes) in &vector.parts {
            text.extend(bytes.chunks(32).map(|row| format!("{who:<7}{}", hex(row))));
        }
        text.push(String::new());
    }
    text.join("\n")
}

fn hex(row: &[u8]) -> String {
    let words: Vec<String> = row
        .chunks(4)
        .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    words.join(" ")
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn parse(text: &str) -> Vec<Vector> {
    let mut vectors: Vec<Vector> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(title) = line.strip_prefix("== ") {
            let (name, about) = title.split_once(" · ").expect("a name and what it is");
            vectors.push(Vector {
                name: name.to_owned(),
                about: about.to_owned(),
                ..Vector::default()
            });
            continue;
        }
        let vector = vectors.last_mut().expect("a title comes first");
        if line.starts_with('{') {
            line.clone_into(&mut vector.value);
            continue;
        }
        let (who, digits) = line.split_once(' ').unwrap_or((line, ""));
        let bytes = unhex(digits);
        match vector.parts.last_mut() {
            Some((name, part)) if name == who => part.extend(bytes),
            _ => vector.parts.push((who.to_owned(), bytes)),
        }
    }
    vectors
}

fn unhex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b' ').collect();
    digits
        .chunks(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("ASCII");
            u8::from_str_radix(pair, 16).expect("hexadecimal")
        })
        .collect()
}
