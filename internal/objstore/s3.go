package objstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// singleMax is the largest object stored by one PUT, which is whole or
	// absent and leaves nothing behind when it breaks.
	singleMax = 256 << 20
	// partSize is the size of a multipart upload's parts; with 10,000 parts,
	// the most that S3 takes, objects up to 625 GiB are possible.
	partSize = 64 << 20
	// unlimited is a length that no object reaches; sums with it overflow at
	// some servers.
	unlimited = 1 << 50
)

// s3Store is a bucket behind the S3 protocol. It sends no checksum headers,
// trailers or chunked signatures, which many compatible stores refuse: bodies
// are protected by the SHA-256 that is part of the signature.
type s3Store struct {
	client *minio.Core
	creds  *credentials.Credentials
	bucket string
	// singleMax and partSize are the constants of these names, smaller in
	// tests.
	singleMax, partSize int64
}

// List implements Store.
func (s *s3Store) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, answers := watch(ctx)
		owner := false
		last := after
		objects := s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{
			Prefix: prefix, StartAfter: after, Recursive: true, FetchOwner: &owner,
		})
		for o := range objects {
			switch {
			case o.Err != nil:
				yield(Object{}, s.fail(OpList, prefix, answers, o.Err))
				return
			case o.Key <= last || !strings.HasPrefix(o.Key, prefix):
				yield(Object{}, fmt.Errorf("list %s: the store returned %q after %q: %w", prefix, o.Key, last, errors.ErrUnsupported))
				return
			}
			last = o.Key
			if !yield(Object{Key: o.Key, Size: o.Size, ETag: o.ETag, Modified: o.LastModified}, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil { // the client ends the loop without a word
			yield(Object{}, fmt.Errorf("list %s: %w", prefix, err))
		}
	}
}

// Get implements Store.
func (s *s3Store) Get(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, Object, error) {
	if err := begin(ctx, OpGet, key); err != nil {
		return nil, Object{}, err
	}
	get, partial := getHeaders(opts)
	ctx, answers := watch(ctx)
	body, info, header, err := s.client.GetObject(ctx, s.bucket, key, get)
	if err != nil {
		if partial && minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
			return s.getUnsatisfied(ctx, key, opts)
		}
		return nil, Object{}, s.fail(OpGet, key, answers, err)
	}
	obj := Object{Key: key, Size: info.Size, ETag: info.ETag, Modified: info.LastModified}
	length := info.Size
	if partial {
		obj.Size, err = wholeSize(header.Get("Content-Range"), opts, info.Size)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("get %s: %w", key, err)
	case obj.ETag == "" || obj.Size < 0:
		err = fmt.Errorf("get %s: the answer names no etag or no size", key)
	case opts.IfMatch != "" && opts.IfMatch != obj.ETag: // not every store looks at the header
		err = fmt.Errorf("get %s: %w", key, ErrPrecondition)
	}
	if err != nil {
		body.Close()
		return nil, Object{}, err
	}
	if opts.Offset < 0 && opts.Length > 0 {
		length = min(length, opts.Length)
	}
	return &s3Body{body: body, store: s, key: key, answers: answers, left: length}, obj, nil
}

// getHeaders returns the headers of a read, and whether it has a range.
func getHeaders(opts GetOptions) (get minio.GetObjectOptions, partial bool) {
	switch partial = true; {
	case opts.Offset < 0:
		get.Set("Range", fmt.Sprintf("bytes=%d", opts.Offset))
	case opts.Length > 0 && opts.Length < unlimited:
		get.Set("Range", fmt.Sprintf("bytes=%d-%d", opts.Offset, opts.Offset+opts.Length-1))
	case opts.Offset > 0:
		get.Set("Range", fmt.Sprintf("bytes=%d-", opts.Offset))
	default:
		partial = false
	}
	if opts.IfMatch != "" {
		get.Set("If-Match", `"`+opts.IfMatch+`"`)
	}
	return get, partial
}

// getUnsatisfied answers a read whose range the store refused: it starts at or
// past the object's end, or asks for the last bytes of an object that is
// shorter, which some stores refuse too.
func (s *s3Store) getUnsatisfied(ctx context.Context, key string, opts GetOptions) (io.ReadCloser, Object, error) {
	ctx, answers := watch(ctx)
	info, err := s.client.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return nil, Object{}, s.fail(OpGet, key, answers, err)
	}
	obj := Object{Key: key, Size: info.Size, ETag: info.ETag, Modified: info.LastModified}
	if opts.IfMatch != "" && opts.IfMatch != obj.ETag {
		return nil, Object{}, fmt.Errorf("get %s: %w", key, ErrPrecondition)
	}
	switch from, to := window(opts, obj.Size); {
	case from == to:
		return http.NoBody, obj, nil
	case opts.Offset < 0 && from == 0:
		return s.Get(ctx, key, GetOptions{Length: opts.Length, IfMatch: obj.ETag})
	}
	return nil, Object{}, fmt.Errorf("get %s: the store refused a range inside the object, or it was replaced just now", key)
}

// wholeSize returns the size of the object that an answer of got bytes is a
// part of. A store that ignores the range may do so where it asks for
// everything.
func wholeSize(contentRange string, opts GetOptions, got int64) (int64, error) {
	if contentRange == "" {
		if from, to := window(opts, got); from == 0 && to == got {
			return got, nil
		}
		return 0, fmt.Errorf("the store ignored the range: %w", errors.ErrUnsupported)
	}
	_, whole, _ := strings.Cut(contentRange, "/")
	size, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("content range %q gives no size", contentRange)
	}
	if from, to := window(opts, size); opts.Offset >= 0 && to-from != got || opts.Offset < 0 && got != min(-opts.Offset, size) {
		return 0, fmt.Errorf("asked for %d bytes at %d, got %q", to-from, from, contentRange)
	}
	return size, nil
}

// s3Body ends after left bytes and gives errors the store's words.
type s3Body struct {
	body    io.ReadCloser
	store   *s3Store
	key     string
	answers *attempt
	left    int64
}

// Read implements io.Reader.
func (b *s3Body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.EOF
	}
	n, err := b.body.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if errors.Is(err, io.EOF) {
		if b.left == 0 {
			return n, io.EOF
		}
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		err = b.store.fail(OpGet, b.key, b.answers, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *s3Body) Close() error { return b.body.Close() }

// Put implements Store.
func (s *s3Store) Put(ctx context.Context, key string, body io.ReaderAt, size int64, opts PutOptions) (Object, error) {
	if err := begin(ctx, OpPut, key); err != nil {
		return Object{}, err
	}
	if err := checkConditions(key, opts); err != nil {
		return Object{}, err
	}
	put := minio.PutObjectOptions{ContentType: opts.ContentType, DisableContentSha256: true}
	conditional := true
	switch {
	case opts.IfAbsent:
		put.SetMatchETagExcept("*")
	case opts.IfMatch != "":
		put.SetMatchETag(opts.IfMatch)
	default:
		conditional = false
	}
	ctx, answers := watch(ctx)
	var info minio.UploadInfo
	var err error
	if size > s.singleMax && !conditional { // a multipart upload drops conditions
		info, err = s.putParts(ctx, key, body, size, put)
	} else {
		info, err = s.putSingle(ctx, key, body, size, put)
	}
	if err != nil {
		failed := s.fail(OpPut, key, answers, err)
		if opts.IfMatch != "" && errors.Is(failed, ErrNotFound) {
			return Object{}, fmt.Errorf("put %s: %w: no object", key, ErrPrecondition)
		}
		return Object{}, failed
	}
	if info.ETag == "" {
		return Object{}, fmt.Errorf("put %s: the answer names no etag", key)
	}
	return Object{Key: key, Size: size, ETag: info.ETag, Modified: answers.time()}, nil
}

func (s *s3Store) putSingle(ctx context.Context, key string, body io.ReaderAt, size int64, put minio.PutObjectOptions) (minio.UploadInfo, error) {
	sum, err := hashPart(body, 0, size)
	if err != nil {
		return minio.UploadInfo{}, err
	}
	return s.client.PutObject(ctx, s.bucket, key, io.NewSectionReader(body, 0, size), size, "", sum, put)
}

// putParts uploads part by part. What an upload that failed left behind is
// removed at once, since nobody sees it and everybody pays for it.
func (s *s3Store) putParts(ctx context.Context, key string, body io.ReaderAt, size int64, put minio.PutObjectOptions) (info minio.UploadInfo, err error) {
	id, err := s.client.NewMultipartUpload(ctx, s.bucket, key, put)
	if err != nil {
		return info, err
	}
	defer func() {
		if err == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if s.client.AbortMultipartUpload(ctx, s.bucket, key, id) != nil {
			err = &leftover{err, id}
		}
	}()
	var parts []minio.CompletePart
	for at := int64(0); at < size; at += s.partSize {
		length := min(s.partSize, size-at)
		sum, err := hashPart(body, at, length)
		if err != nil {
			return info, err
		}
		part, err := s.client.PutObjectPart(ctx, s.bucket, key, id, len(parts)+1, io.NewSectionReader(body, at, length), length,
			minio.PutObjectPartOptions{Sha256Hex: sum, DisableContentSha256: true})
		if err != nil {
			return info, err
		}
		parts = append(parts, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
	}
	return s.client.CompleteMultipartUpload(ctx, s.bucket, key, id, parts, minio.PutObjectOptions{})
}

// hashPart returns the SHA-256 of a part of body that must be there in full.
func hashPart(body io.ReaderAt, at, length int64) (string, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, io.NewSectionReader(body, at, length))
	if err != nil || n < length {
		return "", bodyError(at+n, at+length, err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Delete implements Store.
func (s *s3Store) Delete(ctx context.Context, key string) error {
	if err := begin(ctx, OpDelete, key); err != nil {
		return err
	}
	ctx, answers := watch(ctx)
	err := s.client.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
	if err == nil {
		return nil
	}
	if failed := s.fail(OpDelete, key, answers, err); !errors.Is(failed, ErrNotFound) {
		return failed
	}
	return nil
}
