//! The files of the status page. They are part of the program: nothing is loaded from elsewhere.

/// What a browser is given under a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) path: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) text: &'static str,
}

pub(crate) const FILES: [File; 4] = [
    File {
        path: "/",
        media_type: "text/html; charset=utf-8",
        text: include_str!("page/index.html"),
    },
    File {
        path: "/style.css",
        media_type: "text/css; charset=utf-8",
        text: include_str!("page/style.css"),
    },
    File {
        path: "/script.js",
        media_type: "text/javascript; charset=utf-8",
        text: include_str!("page/script.js"),
    },
    File {
        path: "/icon.svg",
        media_type: "image/svg+xml",
        text: include_str!("page/icon.svg"),
    },
];
