"""Known messages of TensorFlow and what stands under it: what each means, recognised in reports and in our own runs."""
