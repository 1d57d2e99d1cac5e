package objstore

// SetPartSizes makes an S3 store without prefix upload in parts what is larger
// than single.
func SetPartSizes(s Store, single, part int64) {
	s3 := s.(*s3Store)
	s3.singleMax, s3.partSize = single, part
}
