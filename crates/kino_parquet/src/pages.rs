//! Pages of a column, checked before the parquet crate trusts them.
//!
//! The crate allocates what a dictionary page claims, and a page of twenty bytes can claim two billion equal values. A
//! page is passed on only if its counts are consistent with its bytes and the requested rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::Result;

use crate::error::wrong;
use crate::headers::Headers;

/// Limit on the values of a dictionary: each takes more memory than its bytes.
const MAX_DICTIONARY_VALUES: u32 = 1 << 21;

/// No page has more values than this.
const MAX_PAGE_VALUES: u32 = 1 << 24;

/// A page reader that passes on only plausible pages.
pub(crate) struct CheckedPages {
    inner: Box<dyn PageReader>,
    headers: Headers,
    handed: u64,
    /// How many values the rows requested so far can have.
    requested: Arc<AtomicU64>,
    /// How many values all rows can have.
    all: u64,
}

impl CheckedPages {
    pub(crate) fn new(
        inner: Box<dyn PageReader>,
        headers: Headers,
        requested: Arc<AtomicU64>,
        all: u64,
    ) -> Self {
        Self {
            inner,
            headers,
            handed: 0,
            requested,
            all,
        }
    }
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        // A row ends where the next begins, so the page after the last requested one is read too.
        if self.handed > self.requested.load(Ordering::Relaxed) {
            return Err(wrong("it has more values than its rows"));
        }
        self.headers.check()?;
        let Some(page) = self.inner.get_next_page()? else {
            return Ok(None);
        };
        check(&page)?;
        if page.is_data_page() {
            self.handed += u64::from(page.num_values());
        }
        if self.handed > self.all {
            return Err(wrong("it has more values than its rows"));
        }
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.headers.pass()?;
        self.inner.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.inner.at_record_boundary()
    }
}

fn check(page: &Page) -> Result<()> {
    let values = page.num_values();
    match page.encoding() {
        // A dictionary value takes at least a byte.
        _ if page.is_dictionary_page() && values as usize > page.buffer().len() => {
            Err(wrong("its dictionary is longer than its bytes"))
        }
        _ if page.is_dictionary_page() && values > MAX_DICTIONARY_VALUES => {
            Err(wrong("its dictionary has over 2 million values"))
        }
        _ if values > MAX_PAGE_VALUES => Err(wrong("a page has over 16 million values")),
        Encoding::PLAIN
        | Encoding::PLAIN_DICTIONARY
        | Encoding::RLE
        | Encoding::RLE_DICTIONARY
        | Encoding::BYTE_STREAM_SPLIT => Ok(()),
        // Their decoders allocate what the page's bytes claim.
        other => Err(wrong(format!(
            "its encoding {other} is not supported; rewrite it with pyarrow's defaults"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::tests::headers;

    /// Pages from a list.
    struct Listed(Vec<Page>);

    impl Iterator for Listed {
        type Item = Result<Page>;

        fn next(&mut self) -> Option<Self::Item> {
            self.get_next_page().transpose()
        }
    }

    impl PageReader for Listed {
        fn get_next_page(&mut self) -> Result<Option<Page>> {
            Ok(self.0.pop())
        }

        fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
            Ok(None)
        }

        fn skip_next_page(&mut self) -> Result<()> {
            Ok(())
        }
    }

    fn data(num_values: u32, encoding: Encoding) -> Page {
        Page::DataPage {
            buf: vec![0; 20].into(),
            num_values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }
    }

    fn hand(pages: Vec<Page>, requested: u64, all: u64) -> Result<u32> {
        let requested = Arc::new(AtomicU64::new(requested));
        let pages = CheckedPages::new(Box::new(Listed(pages)), headers(&[]), requested, all);
        pages.map(|page| page.map(|page| page.num_values())).sum()
    }

    #[test]
    fn pages_that_claim_more_than_they_can_hold_are_refused() {
        let most = u64::MAX;
        assert_eq!(hand(vec![data(9, Encoding::PLAIN)], 10, 10).unwrap(), 9);
        assert!(hand(vec![data(u32::MAX, Encoding::RLE_DICTIONARY)], most, most).is_err());
        assert!(hand(vec![data(9, Encoding::DELTA_BYTE_ARRAY)], 10, 10).is_err());
        let dictionary = Page::DictionaryPage {
            buf: vec![0; 20].into(),
            num_values: 21,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        assert!(hand(vec![dictionary], 10, 10).is_err());
    }

    #[test]
    fn a_row_gets_no_more_values_than_it_can_have() {
        let pages = || vec![data(1000, Encoding::RLE); 1000];
        for (requested, all) in [(3000, u64::MAX), (u64::MAX, 999_999)] {
            let error = hand(pages(), requested, all).unwrap_err();
            assert!(
                error.to_string().contains("more values than its rows"),
                "{error}"
            );
        }
        assert_eq!(hand(pages(), 1_000_001, 1_000_000).unwrap(), 1_000_000);
    }
}
