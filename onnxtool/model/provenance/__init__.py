"""A file's history: digests, metadata, signatures, the software bill of materials, and their verification."""
