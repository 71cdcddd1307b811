key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
openssl req -x509 $key -subj /CN=world -keyout ca.key -out ca.pem -addext basicConstraints=critical,CA:TRUE
openssl req $key -subj /CN=web.example -keyout web.key -out web.csr
echo 'subjectAltName=DNS:web.example,DNS:registry.example' > names
openssl x509 -req -in web.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out web.pem
