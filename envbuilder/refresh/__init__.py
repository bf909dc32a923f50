"""Keep the facts true: compare rows with the artefacts on the index, and propose rows for new releases."""
