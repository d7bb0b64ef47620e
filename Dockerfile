# Serves the model folder that is mounted at /model: see docs/http.md.
FROM python:3.12-slim

WORKDIR /garden
COPY . .
RUN pip install --no-cache-dir --require-hashes -r requirements.lock \
    && pip install --no-cache-dir '.[serve]' \
    && useradd --create-home garden

USER garden
EXPOSE 8000
# Others than this container can reach it, so GARDEN_API_KEY has to be set.
ENTRYPOINT ["garden", "serve", "/model", "--host=0.0.0.0", "--port=8000"]
